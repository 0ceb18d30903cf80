#include "src/cli/commands.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/audit_command.hpp"
#include "src/cli/check_command.hpp"
#include "src/cli/compare_command.hpp"
#include "src/cli/doctor_command.hpp"
#include "src/cli/gpu.hpp"
#include "src/cli/init_model_command.hpp"
#include "src/cli/inspect_command.hpp"
#include "src/cli/model_commands.hpp"
#include "src/cli/plan_command.hpp"
#include "src/cli/prepare_command.hpp"
#include "src/cli/render_command.hpp"
#include "src/cli/spec_command.hpp"
#include "src/cli/tokenize_command.hpp"
#include "src/cli/train_command.hpp"
#include "src/spec/keys.hpp"
#include "src/train/inputs.hpp"

namespace tandem {

namespace {

const OptionHelp kConfigOption = {"config", "FILE",
                                  "lines `key = value`; relative paths in it start at its folder"};
const OptionHelp kModelKey = {"model", "DIR", "short for --model.path", false, "model.path"};
const OptionHelp kDataKey = {"data", "FILE", "short for --data.train", false, "data.train"};

Settings read_file(const Arguments& arguments) {
  return arguments.has("config") ? read_config_file(arguments.get("config")) : Settings{};
}

// An option's whole number; none where it is not given.
template <class T>
std::optional<T> integer(const Arguments& arguments, const std::string& name,
                         const char* command = "init-model") {
  if (!arguments.has(name)) return std::nullopt;
  const std::string text = arguments.get(name);
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw Error(ErrorKind::kUsage, cat(command, ": --", name, " ", text, ": must be an integer"));
  return value;
}

std::optional<bool> yes_or_no(const Arguments& arguments, const std::string& name) {
  if (!arguments.has(name)) return std::nullopt;
  const std::string text = arguments.get(name);
  if (text != "true" && text != "false")
    throw Error(ErrorKind::kUsage, cat("init-model: --", name, " ", text, ": must be true or false"));
  return text == "true";
}

int run_init_model(const Arguments& arguments) {
  InitModelOptions options;
  options.preset = arguments.get("preset", options.preset);
  options.seed = integer<std::uint64_t>(arguments, "seed").value_or(options.seed);
  options.tokenizer = arguments.get("tokenizer");
  options.out = arguments.get("out");
  options.dtype = arguments.get("dtype");
  if (arguments.has("type")) options.type = arguments.get("type");
  options.hidden = integer<std::int64_t>(arguments, "hidden");
  options.layers = integer<std::int64_t>(arguments, "layers");
  options.heads = integer<std::int64_t>(arguments, "heads");
  options.kv_heads = integer<std::int64_t>(arguments, "kv-heads");
  options.head_dim = integer<std::int64_t>(arguments, "head-dim");
  options.intermediate = integer<std::int64_t>(arguments, "intermediate");
  options.vocab = integer<std::int64_t>(arguments, "vocab");
  options.tied = yes_or_no(arguments, "tied");
  return init_model_command(options, std::cout);
}

int run_prepare(const Arguments& arguments) {
  return prepare_command(prepare_options(arguments), arguments.has("json"), std::cout, std::cerr);
}

int run_tokenize(const Arguments& arguments) {
  return tokenize_command(arguments.get("model"), std::cin, std::cout);
}

// NO_COLOR: https://no-color.org
bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
}

int run_render(const Arguments& arguments) {
  const Config config = make_config({}, arguments.keys);
  const RenderJob job{.model_dir = arguments.get("model"),
                      .file = arguments.positional.front(),
                      .held_out = arguments.get("held-out"),
                      .cache = config.run.cache.path,
                      .options = render_options(config.spec)};
  const bool digest = arguments.has("digest"), against = arguments.has("against"),
             show = arguments.has("show");
  if (digest + against + show > 1)
    throw Error(ErrorKind::kUsage, "render: --digest, --against and --show exclude one another");
  if (arguments.has("held-out") && !digest && !against)
    throw Error(ErrorKind::kUsage, "render: --held-out goes with --digest or --against");
  if (arguments.has("with-ids") && !digest)
    throw Error(ErrorKind::kUsage, "render: --with-ids goes with --digest");
  if (digest)
    return render_digest(job, arguments.get("digest"), arguments.has("with-ids"), std::cout, std::cerr);
  if (against) return render_against(job, arguments.get("against"), std::cout, std::cerr);
  if (!show) return render_rows(job, std::cout, std::cerr);
  const auto count = integer<std::int64_t>(arguments, "show", "render").value_or(0);
  if (count < 1) throw Error(ErrorKind::kUsage, cat("render: --show ", count, ": must be 1 or more"));
  return render_show(job, count, colour_wanted(), std::cout, std::cerr);
}

int run_train(const Arguments& arguments) {
  return train_command([&] { return make_config(read_file(arguments), arguments.keys); }, arguments.words);
}

int run_check(const Arguments& arguments) {
  const auto seconds = integer<std::int64_t>(arguments, "seconds", "check").value_or(20);
  if (seconds < 1) throw Error(ErrorKind::kUsage, cat("check: --seconds ", seconds, ": must be 1 or more"));
  return check_command(make_config(read_file(arguments), arguments.keys),
                       {.out = arguments.get("out"),
                        .seconds = static_cast<double>(seconds),
                        .json = arguments.has("json"),
                        .colour = colour_wanted()},
                       std::cout);
}

int run_plan(const Arguments& arguments) {
  return plan_command(make_config(read_file(arguments), arguments.keys), arguments.get("ranks", "1"),
                      std::cout);
}

int run_audit(const Arguments& arguments) {
  const auto threads = integer<int>(arguments, "mirror.threads", "audit").value_or(1);
  if (threads < 1)
    throw Error(ErrorKind::kUsage, cat("audit: --mirror.threads ", threads, ": must be 1 or more"));
  return audit_command({.snapshot = arguments.positional.front(),
                        .model = arguments.get("model.path"),
                        .train = arguments.get("data.train"),
                        .held_out = arguments.get("data.held_out"),
                        .lora_init = arguments.get("lora.init"),
                        .calibration = arguments.get("mirror.calibration"),
                        .threads = threads,
                        .json = arguments.has("json")},
                       std::cout);
}

int run_inspect(const Arguments& arguments) {
  return inspect_command({.path = arguments.positional.front(),
                          .json = arguments.has("json"),
                          .validate = arguments.has("validate")},
                         std::cout);
}

int run_compare(const Arguments& arguments) {
  return compare_command({.paths = {arguments.positional.begin(), arguments.positional.end()},
                          .across_specs = arguments.has("across-specs"),
                          .json = arguments.has("json"),
                          .all = arguments.has("all"),
                          .colour = colour_wanted()},
                         std::cout);
}

int run_doctor(const Arguments& arguments) {
  DoctorOptions options;
  options.out = arguments.get("out", options.out.string());
  options.seconds = integer<int>(arguments, "seconds", "doctor").value_or(options.seconds);
  options.threads = integer<int>(arguments, "threads", "doctor").value_or(options.threads);
  if (options.seconds < 0 || options.threads < 0)
    throw Error(ErrorKind::kUsage, "doctor: --seconds and --threads must be 0 or more");
  if (GpuBuild* const build = gpu_build()) options.gpus = &build->system();
  options.may_share_gpus = arguments.has("share-gpus");
  return doctor_command(options, std::cout);
}

int run_spec(const Arguments& arguments) {
  const Settings file = read_file(arguments);
  return arguments.has("show-all") ? show_all_command(file, arguments.keys, std::cout)
                                   : spec_command(make_config(file, arguments.keys), std::cout);
}

std::vector<Command> make_commands() {
  std::vector<Command> table = {
      {.name = "init-model",
       .summary = "a model with random weights, to try things without a download",
       .usage = "[--preset NAME] [--seed N] [--tokenizer DIR] --out DIR",
       .about = "Writes a folder in Hugging Face's layout: config.json, model.safetensors and a\n"
                "tokenizer. The same seed and sizes give the same bytes on any machine.\n",
       .example = "tandem init-model --preset tiny --seed 1 --out runs/model",
       .options = {{"preset", "NAME", "sizes: tiny (default), smollm2-135m or qwen3-0.6b"},
                   {"seed", "N", "draws the weights (default 0)"},
                   {"tokenizer", "DIR",
                    "take tokenizer.json and its companions from here (default: bytes as tokens)"},
                   {"out", "DIR", "the new folder; must be absent or empty", true},
                   {"dtype", "WORD", "F32 or BF16 (default: F32 for tiny, BF16 for the others)"},
                   {"type", "WORD",
                    "qwen3 or llama, instead of the preset's; so the following, in elements:"},
                   {"hidden", "N", "width of the residual stream"},
                   {"layers", "N", "number of layers"},
                   {"heads", "N", "query heads"},
                   {"kv-heads", "N", "key-value heads"},
                   {"head-dim", "N", "width of a head"},
                   {"intermediate", "N", "width of the feed-forward part"},
                   {"vocab", "N", "rows of embedding and head"},
                   {"tied", "BOOL", "true: the head is the embedding"}},
       .run = run_init_model},
      {.name = "prepare",
       .summary = "public clinical questions to rows for training",
       .usage = "--from SOURCE:FILE [--from ...] --out DIR [options]",
       .about = "Reads MedMCQA, MedQA and PubMedQA as their authors publish them, leaves out duplicates\n"
                "and what cannot be used, and writes DIR/train.jsonl, DIR/held_out.jsonl and\n"
                "DIR/prepare.json. Prints where every row went. configs/prompts/ has the wording and\n"
                "the rules.\n",
       .example = "tandem prepare --from medqa:configs/tiny_medqa.jsonl --held-out 0.3 --out runs/prepared",
       .options = {{"from", "SOURCE:FILE",
                    "a file of medmcqa, medqa or pubmedqa; may be given again, and of two equal "
                    "questions the first is kept",
                    true, "", true},
                   {"out", "DIR", "the new folder; must be absent or empty", true},
                   {"held-out", "SHARE",
                    "of the questions, from 0 to below 1 (default 0.02); a question's own text "
                    "decides, so no row changes sides when a source is added"},
                   {"data.target", "WORD",
                    "explanation_or_answer (default): without an explanation the answer as a "
                    "sentence; explanation: such rows are left out"},
                   {"cop-base", "N",
                    "whether MedMCQA's `cop` counts from 0 or 1, where its file does not show it"},
                   {"prompts", "DIR",
                    "texts to use instead of the built-in ones, as configs/prompts/ has them"},
                   {"overwrite", "", "replace what an earlier prepare left in DIR"},
                   {"json", "", "print the report as JSON (as in DIR/prepare.json), not as a table"}},
       .run = run_prepare},
      {.name = "tokenize",
       .summary = "text to token ids",
       .usage = "--model DIR < TEXTS",
       .about = "Reads one JSON string a line, writes one JSON array of token ids a line.\n",
       .example = "echo '\"Hello, world\"' | tandem tokenize --model runs/quickstart/model",
       .options = {{"model", "DIR", "folder that holds tokenizer.json", true}},
       .run = run_tokenize},
      {.name = "render",
       .summary = "rows to samples: text, token ids, target marks",
       .usage = "--model DIR [--show N | --digest OUT.h5 | --against OTHER.h5] [data keys] FILE",
       .about = "Reads JSON Lines as `train` does, writes one JSON object a line: `line` (from 1),\n"
                "`text` (null for tokenised rows), `ids`, `targets` (0 or 1 for each id; 1: its\n"
                "prediction is scored), `digest`. With one of these options instead:\n"
                "  --show     the first samples as text, scored tokens in colour (none with NO_COLOR)\n"
                "             or in brackets\n"
                "  --digest   every sample's digest as an HDF5 file (io/FORMAT.md)\n"
                "  --against  compares with such a file of another stack, or with a run's\n"
                "             trajectory; shows the first token that differs; exit code 5\n",
       .example = "tandem render --model runs/quickstart/model --show 2 configs/tiny.jsonl",
       .options = {{"model", "DIR", "folder that holds tokenizer.json and tokenizer_config.json", true},
                   {"show", "N", "how many samples"},
                   {"digest", "OUT.h5", "the file to write"},
                   {"with-ids", "", "with --digest: token ids and target marks too"},
                   {"against", "OTHER.h5", "the file to compare with"},
                   {"held-out", "FILE", "held-out rows, with --digest and --against"}},
       .keys = {"data.template", "data.max_tokens", "data.truncate", "data.targets", "data.special_in_text",
                "data.cache"},
       .positionals = {"FILE"},
       .run = run_render},
      {.name = "check",
       .summary = "whether both stacks agree, before anything is trained",
       .usage = "[--config FILE] [--KEY VALUE ...] [--json] [--out FILE.h5] [--seconds N]",
       .about = "Takes what `train` takes and trains nothing: every operation on drawn inputs, the\n"
                "first micro-batch's gradient, the untrained held-out loss (level 1); weights as\n"
                "loaded, an adapter saved, merged and read back (2); every sample's token ids (3).\n"
                "Native against the mirror; three samples are shown with what is scored. Exit code\n"
                "0 where nothing differs, 5 otherwise.\n",
       .example = "tandem check --config configs/tiny.cfg --model runs/quickstart/model",
       .options = {kConfigOption,
                   {"json", "", "one JSON object, with every operation and tensor"},
                   {"out", "FILE.h5", "a trajectory file of what was found: /ops, /load, /render"},
                   {"seconds", "N",
                    "what the mirror may take for a held-out loss, and for a gradient (default 20); what is "
                    "left out is named"},
                   kModelKey,
                   kDataKey},
       .keys = key_names(),
       .run = run_check,
       .one_process = true},
      {.name = "train",
       .summary = "fine-tunes a model, on one rank or many",
       .usage = "[--config FILE] [--KEY VALUE ...]",
       .about = "Needs a model and training rows; everything else has a default. Leaves in run.out\n"
                "the trajectory (native.h5), the adapter in PEFT's format, the texts of spec and\n"
                "execution, and the log. On N ranks: tandem-mpirun -n N tandem train ...; the\n"
                "numbers are the same bits for any N.\n",
       .example = "tandem train --config configs/tiny.cfg --model runs/quickstart/model",
       .options = {kConfigOption, kModelKey, kDataKey},
       .keys = key_names(),
       .run = run_train},
      {.name = "inspect",
       .summary = "what a trajectory file or a run's folder holds",
       .usage = "[--validate] [--json] FILE_OR_FOLDER",
       .about = "Reads trajectories (io/FORMAT.md), also of a run that is still going on. Losses are\n"
                "natural logarithms per scored token. `improved` counts, of the evaluations after the\n"
                "first, those with a lower loss than every one before, and those with a lower loss than\n"
                "the one just before. d/bound: an audited gradient's relative error by its threshold.\n",
       .example = "tandem inspect runs/quickstart/run",
       .options = {{"validate", "",
                    "hold each file, with the snapshots it links, to io/FORMAT.md instead: one line per "
                    "problem (rows count from 0); exit code 3 where there is one"},
                   {"json", "",
                    "one JSON object: {\"trajectories\": [...]}; with --validate {\"files\": [...]}"}},
       .positionals = {"FILE_OR_FOLDER"},
       .run = run_inspect},
      {.name = "audit",
       .summary = "the mirror's verdict on a stored update of a run",
       .usage = "[--json] SNAPSHOT",
       .about = "Computes the update of RUN/native.snapshots/STEP.h5 again, from the state stored there,\n"
                "in float64. Inputs are looked for where the run had them, or where an option says.\n"
                "Exit code 0 PASS, 5 otherwise.\n",
       .example = "tandem audit runs/quickstart/run/native.snapshots/40.h5",
       .options = {{"model.path", "DIR", "the run's model"},
                   {"data.train", "FILE", "its training rows"},
                   {"data.held_out", "FILE", "its held-out rows"},
                   {"lora.init", "DIR", "the adapter it started from"},
                   {"mirror.calibration", "DIR", "thresholds that are kept"},
                   {"mirror.threads", "N", "threads (1)"},
                   {"json", "", "one JSON object, with all tensors"}},
       .positionals = {"SNAPSHOT"},
       .run = run_audit,
       .one_process = true},
      {.name = "compare",
       .summary = "two trajectories, level by level, to a verdict",
       .usage = "[--json] [--all] [--across-specs] A.h5 B.h5 [REPLICATE.h5 ...]",
       .about = "Names where two runs of one spec part: operators, loading, rendering or trajectory,\n"
                "update, tensor, sample. A run's folder stands for its native.h5; one folder alone is\n"
                "compared with itself: native.h5 with mirror.h5. Further files are replicates of A's\n"
                "stack, by which B's later updates are judged. Exit code 0 PASS, 5 otherwise.\n",
       .example = "tandem compare runs/quickstart/run runs/quickstart/run/native.h5",
       .options = {{"json", "", "one JSON object, with all observations"},
                   {"all", "", "show also what passed, with the smallest difference it would have seen"},
                   {"across-specs", "", "compare in spite of other specs (never a pass)"}},
       .positionals = {"FILE_OR_FOLDER"},
       .last_may_repeat = true,
       .run = run_compare},
      {.name = "plan",
       .summary = "the memory and the updates that a run would take",
       .usage = "[--config FILE] [--KEY VALUE ...] [--ranks N]",
       .about = "Reads the model's configuration and the rows, not the weights. Memory in GiB, for\n"
                "the ranks of one node; exit code 4 where it does not fit (memory.limit, or what\n"
                "this machine has free).\n",
       .example = "tandem plan --config configs/tiny.cfg --model runs/quickstart/model --ranks 2",
       .options = {kConfigOption, {"ranks", "N", "ranks on one node (1)"}, kModelKey, kDataKey},
       .keys = key_names(),
       .run = run_plan},
      {.name = "doctor",
       .summary = "whether a machine, or a job's ranks, are fit for a run",
       .usage = "[--out DIR] [--seconds N] [--threads N] [--share-gpus]",
       .about = "One line a check: ok, note (works, but slowly or not as it could) or FAIL, with what to\n"
                "do; ranks that differ are named. Launcher, libraries, GPUs, cores, memory, the folder\n"
                "for runs, the network. Start it as the run will be: tandem-mpirun -n N tandem doctor, or\n"
                "srun --mpi=pmix tandem doctor. Exit code 0 where nothing would stop a run.\n",
       .example = "tandem doctor --out runs",
       .options = {{"out", "DIR", "where run folders will lie (default: here)"},
                   {"seconds", "N", "of summing over the ranks (default 5)"},
                   {"threads", "N", "per rank, as for `train`; 0 (default): its share of the node's CPUs"},
                   {"share-gpus", "", "ranks may compute on one GPU, as with `gpu = shared`"}},
       .run = run_doctor},
      {.name = "spec",
       .summary = "what a configuration computes, as its canonical text",
       .usage = "[--config FILE] [--KEY VALUE ...] [--show-all]",
       .about = "Writes the canonical text of SPEC.md: two runs with the same text compute the same.\n"
                "Its SHA-256 is the spec's digest. Reads the model's and the data's files for their\n"
                "digests and, where the updates follow from the epochs, for the number of samples.\n",
       .example = "tandem spec --config configs/tiny.cfg --model runs/quickstart/model",
       .options = {kConfigOption,
                   {"show-all", "",
                    "every key with value, origin, default, unit and range; reads no other file"},
                   kModelKey,
                   kDataKey},
       .keys = key_names(),
       .run = run_spec},
  };
  // In the order of a user's work.
  const auto next = std::find_if(table.begin(), table.end(),
                                 [](const Command& command) { return command.name == "inspect"; });
  const std::vector<Command> more = model_commands();
  table.insert(next, more.begin(), more.end());
  return table;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = make_commands();
  return table;
}

}  // namespace tandem
