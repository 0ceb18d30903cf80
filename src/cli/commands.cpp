#include "src/cli/commands.hpp"

#include <iostream>

#include "src/cli/render_command.hpp"
#include "src/cli/spec_command.hpp"
#include "src/cli/tokenize_command.hpp"
#include "src/spec/keys.hpp"

namespace tandem {

namespace {

const OptionHelp kConfigOption = {"config", "FILE",
                                  "lines `key = value`; relative paths in it start at its folder"};
const OptionHelp kModelKey = {"model", "DIR", "short for --model.path", false, "model.path"};
const OptionHelp kDataKey = {"data", "FILE", "short for --data.train", false, "data.train"};

Settings read_file(const Arguments& arguments) {
  return arguments.has("config") ? read_config_file(arguments.get("config")) : Settings{};
}

int run_tokenize(const Arguments& arguments) {
  return tokenize_command(arguments.get("model"), std::cin, std::cout);
}

int run_render(const Arguments& arguments) {
  const RenderOptions options = render_options(make_config({}, arguments.keys).spec);
  return render_command(arguments.get("model"), arguments.positional.front(), options, std::cout);
}

int run_spec(const Arguments& arguments) {
  const Settings file = read_file(arguments);
  return arguments.has("show-all") ? show_all_command(file, arguments.keys, std::cout)
                                   : spec_command(make_config(file, arguments.keys), std::cout);
}

std::vector<Command> make_commands() {
  return {
      {.name = "tokenize",
       .summary = "text to token ids",
       .usage = "--model DIR < TEXTS",
       .about = "Reads one JSON string a line, writes one JSON array of token ids a line.\n",
       .example = "echo '\"Hello, world\"' | tandem tokenize --model runs/quickstart/model",
       .options = {{"model", "DIR", "folder that holds tokenizer.json", true}},
       .run = run_tokenize},
      {.name = "render",
       .summary = "rows to samples: text, token ids, target marks",
       .usage = "--model DIR [data keys] FILE",
       .about = "Reads JSON Lines as `train` does, writes one JSON object a line: `line` (from 1),\n"
                "`text` (null for tokenised rows), `ids`, `targets` (0 or 1 for each id; 1: its\n"
                "prediction is scored), `digest`.\n",
       .example = "tandem render --model runs/quickstart/model configs/tiny.jsonl",
       .options = {{"model", "DIR", "folder that holds tokenizer.json and tokenizer_config.json", true}},
       .keys = {"data.template", "data.max_tokens", "data.truncate", "data.targets", "data.special_in_text"},
       .positionals = {"FILE"},
       .run = run_render},
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
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = make_commands();
  return table;
}

}  // namespace tandem
