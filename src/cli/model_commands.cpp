#include "src/cli/model_commands.hpp"

#include <charconv>
#include <iostream>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/eval_command.hpp"
#include "src/cli/export_command.hpp"
#include "src/cli/generate_command.hpp"
#include "src/train/inputs.hpp"

namespace tandem {

namespace {

int threads_of(const Arguments& arguments) {
  return static_cast<int>(make_config({}, arguments.keys).execution.threads);
}

int run_export(const Arguments& arguments) {
  ExportOptions options;
  options.run = arguments.get("run");
  options.adapter = arguments.get("adapter");
  options.model = arguments.get("model");
  options.out = arguments.get("out");
  options.name = arguments.get("name");
  options.merge = arguments.has("merge");
  options.threads = threads_of(arguments);
  if (arguments.has("dtype")) {
    const std::string word = arguments.get("dtype");
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      if (word == name_of(dtype)) options.dtype = dtype;
    if (!options.dtype)
      throw Error(ErrorKind::kUsage, cat("export: --dtype ", word, " is not known (F32, BF16, F16)"));
  }
  return export_command(options, std::cout);
}

std::int64_t whole_number(const Arguments& arguments, const std::string& command, const std::string& name) {
  const std::string text = arguments.get(name);
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw Error(ErrorKind::kUsage, cat(command, ": --", name, " ", text, ": must be an integer"));
  return value;
}

int run_generate(const Arguments& arguments) {
  GenerateOptions options;
  options.model = arguments.get("model");
  options.adapter = arguments.get("adapter");
  options.chat_template = make_config({}, arguments.keys).spec.data_template;
  if (!arguments.positional.empty()) options.prompt = arguments.positional.front();
  if (arguments.has("system")) options.system = arguments.get("system");
  if (arguments.has("thinking")) {
    const std::string word = arguments.get("thinking");
    if (word != "true" && word != "false")
      throw Error(ErrorKind::kUsage, cat("generate: --thinking ", word, ": must be true or false"));
    options.thinking = word == "true";
  }
  if (arguments.has("max-tokens")) options.max_tokens = whole_number(arguments, "generate", "max-tokens");
  options.json = arguments.has("json");
  options.threads = threads_of(arguments);
  return generate_command(options, std::cin, std::cout, std::cerr);
}

int run_eval(const Arguments& arguments) {
  const Config config = make_config({}, arguments.keys);
  EvalOptions options;
  options.model = arguments.get("model");
  options.adapter = arguments.get("adapter");
  options.data = arguments.get("data");
  options.render = render_options(config.spec);
  options.choices = arguments.has("choices");
  options.per_token = arguments.get("per-token");
  options.json = arguments.has("json");
  options.micro = config.execution.batch_micro;
  options.threads = static_cast<int>(config.execution.threads);
  return eval_command(options, std::cout);
}

Command eval_entry() {
  return {.name = "eval",
          .summary = "held-out loss or accuracy on choices, base against adapter",
          .usage = "--model DIR --data FILE [--adapter DIR] [--choices]",
          .about =
              "Scores rows as `train` evaluates held-out data: natural logarithms per scored token,\n"
              "no dropout, the same numbers every time. With --choices a row is\n"
              "{\"question\": TEXT, \"choices\": [TEXT, ...], \"answer\": N} (N from 0; `prompt` or\n"
              "`messages` may stand for `question`), and the model's answer is the option whose text\n"
              "has the least negative log-likelihood, whole or per token, as an assistant's turn.\n"
              "The options of a row must differ.\n",
          .example =
              "tandem eval --model runs/quickstart/model --data configs/tiny_held_out.jsonl "
              "--data.max_tokens 256 "
              "--adapter runs/quickstart/run/adapter",
          .options = {{"model", "DIR", "a Hugging Face folder", true},
                      {"data", "FILE", "rows as `train` reads them, or with --choices questions", true},
                      {"adapter", "DIR",
                       "folder of a PEFT adapter: the base model with and without it, side by side"},
                      {"choices", "",
                       "right answers with a 95 % interval (Wilson), and the paired comparison (McNemar)"},
                      {"per-token", "FILE", "write every scored token and its nll as JSON Lines"},
                      {"json", "", "one JSON object"}},
          .keys = {"data.template", "data.max_tokens", "data.truncate", "data.targets",
                   "data.special_in_text", "batch.micro", "threads"},
          .run = run_eval,
          .one_process = true};
}

Command export_entry() {
  return {
      .name = "export",
      .summary = "a run's adapter for PEFT, or a model with it merged in",
      .usage = "(--run FOLDER | --adapter DIR) [--merge] --out DIR",
      .about =
          "Writes a PEFT adapter, or with --merge a whole model folder, and a model card\n"
          "README.md that says what it was made from. Nothing appears unless what was\n"
          "written reads back as it was meant.\n",
      .example = "tandem export --run runs/quickstart/run --out runs/adapter",
      .options =
          {{"run", "FOLDER",
            "run.out of a training run: its adapter, which must be one that native.h5 recorded, with the "
            "run's digests in the card"},
           {"adapter", "DIR", "instead: the folder of a PEFT adapter"},
           {"model", "DIR", "the base model (default: the folder that the adapter names)"},
           {"out", "DIR", "the new folder; must be absent or empty", true},
           {"name", "NAME",
            "the base model's name in what is written, such as Qwen/Qwen3-0.6B (default: its folder)"},
           {"merge", "",
            "write the base model with W + s B A in place of each adapted W, each element formed in "
            "double and rounded once; says the largest rounding error"},
           {"dtype", "WORD", "with --merge: F32, BF16 or F16 for all tensors (default: each tensor's own)"}},
      .keys = {"threads"},
      .run = run_export,
      .one_process = true};
}

Command generate_entry() {
  return {
      .name = "generate",
      .summary = "what a model answers, with or without an adapter",
      .usage = "--model DIR [--adapter DIR] [PROMPT | < ROWS]",
      .about =
          "Greedy: the same answer every time. PROMPT is a user's turn; without it, each line of\n"
          "standard input is a row with `messages`, `prompt` or `ids`, as `train` reads them; an\n"
          "answer that the row holds is left out. The prompt is the model's own template with\n"
          "its generation prompt; the answer ends at the end-of-turn token.\n",
      .example =
          "tandem generate --model runs/quickstart/model --adapter runs/quickstart/run/adapter \"What do "
          "bees make?\"",
      .options = {{"model", "DIR", "a Hugging Face folder", true},
                  {"adapter", "DIR", "folder of a PEFT adapter (default: the base model alone)"},
                  {"system", "TEXT", "a system turn for prompts without one"},
                  {"thinking", "BOOL",
                   "Qwen3: false answers behind an empty think block, as training renders "
                   "answers without reasoning (default: as the template does by itself)"},
                  {"max-tokens", "N", "most tokens of an answer (default 256)"},
                  {"json", "", "one object a line: line, text, stopped (end or length), ids, prompt_ids"}},
      .keys = {"data.template", "threads"},
      .positionals = {"PROMPT"},
      .last_may_lack = true,
      .run = run_generate,
      .one_process = true};
}

}  // namespace

std::vector<Command> model_commands() { return {eval_entry(), export_entry(), generate_entry()}; }

}  // namespace tandem
