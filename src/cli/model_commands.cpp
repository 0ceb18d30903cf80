#include "src/cli/model_commands.hpp"

#include <iostream>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/export_command.hpp"

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
      .options = {{"run", "FOLDER",
                   "run.out of a training run: its adapter, with the run's digests in the card"},
                  {"adapter", "DIR", "instead: the folder of a PEFT adapter"},
                  {"model", "DIR", "the base model (default: the folder that the adapter names)"},
                  {"out", "DIR", "the new folder; must be absent or empty", true},
                  {"name", "NAME",
                   "the base model's name in what is written, such as Qwen/Qwen3-0.6B (default: its folder)"},
                  {"merge", "",
                   "write the base model with W + s B A in place of each adapted W, each element formed in "
                   "double and rounded once; says the largest rounding error"},
                  {"dtype", "WORD",
                   "with --merge: F32, BF16 or F16 for all tensors (default: each tensor's own)"}},
      .keys = {"threads"},
      .run = run_export,
      .one_process = true};
}

}  // namespace

std::vector<Command> model_commands() { return {export_entry()}; }

}  // namespace tandem
