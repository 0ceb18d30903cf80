#include "src/cli/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/spec/keys.hpp"
#include "src/spec/nearest.hpp"

namespace tandem {

namespace {

namespace po = boost::program_options;

[[noreturn]] void refuse(const Command& command, const std::string& text) {
  throw Error(ErrorKind::kUsage, cat(command.name, ": ", text));
}

const OptionHelp* find_option(const Command& command, const std::string& name) {
  for (const OptionHelp& option : command.options)
    if (option.name == name) return &option;
  return nullptr;
}

po::options_description describe(const Command& command) {
  po::options_description description;
  description.add_options()("help,h", "");
  for (const OptionHelp& option : command.options) {
    if (option.argument.empty())
      description.add_options()(option.name.c_str(), "");
    else
      description.add_options()(option.name.c_str(), po::value<std::string>());
  }
  for (const std::string& name : command.keys) {
    const bool is_switch = std::holds_alternative<bool* (*)(Config&)>(find_key(name)->field);
    auto* value = po::value<std::string>();
    if (is_switch) value->implicit_value("true");
    description.add_options()(name.c_str(), value);
  }
  return description;
}

[[noreturn]] void refuse_unknown(const Command& command, const std::string& word) {
  std::vector<std::string> known = command.keys;
  for (const OptionHelp& option : command.options) known.push_back(option.name);
  known.emplace_back("help");
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  refuse(command, cat("unknown option `", word, "`, the nearest one is `--", nearest(name, known), "`"));
}

std::vector<po::option> split(const Command& command, const std::vector<std::string>& words) {
  namespace style = po::command_line_style;
  const po::options_description description = describe(command);
  try {
    return po::command_line_parser(words)
        .options(description)
        .style(style::unix_style & ~style::allow_guessing)
        .run()
        .options;
  } catch (const po::unknown_option& error) {
    refuse_unknown(command, error.get_option_name());
  } catch (const po::error& error) {
    refuse(command, error.what());
  }
}

}  // namespace

Arguments parse_arguments(const Command& command, const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.words = words;
  for (const po::option& part : split(command, words)) {
    if (part.position_key >= 0) {
      arguments.positional.insert(arguments.positional.end(), part.value.begin(), part.value.end());
      continue;
    }
    if (part.string_key == "help") {
      arguments.help = true;
      continue;
    }
    const OptionHelp* option = find_option(command, part.string_key);
    if (option && option->repeatable) {
      arguments.lists[option->name].push_back(part.value.front());
      continue;
    }
    const bool is_key = !option || !option->key.empty();
    const std::string name = option && is_key ? option->key : part.string_key;
    if (is_key ? arguments.keys.contains(name) : arguments.has(name))
      refuse(command, "--" + name + " is given twice");
    if (is_key)
      add_option(arguments.keys, name, part.value.empty() ? "true" : part.value.front());
    else
      arguments.options[name] = part.value.empty() ? "" : part.value.front();
  }
  if (arguments.help) return arguments;

  for (const OptionHelp& option : command.options)
    if (option.required && !arguments.lists.contains(option.name) &&
        !(option.key.empty() ? arguments.has(option.name) : arguments.keys.contains(option.key)))
      refuse(command, cat("--", option.name, " ", option.argument, " is missing: ", option.help));
  for (const auto& [name, value] : arguments.options)
    if (value.empty() && !find_option(command, name)->argument.empty())
      refuse(command, "--" + name + " has no value");
  const std::size_t wanted = command.positionals.size();
  if (arguments.positional.size() + command.last_may_lack < wanted)
    refuse(command, cat(command.positionals[arguments.positional.size()], " is missing: tandem ",
                        command.name, " ", command.usage));
  if (arguments.positional.size() > wanted && !command.last_may_repeat)
    refuse(command, cat("`", arguments.positional[wanted], "` is one argument too many: tandem ",
                        command.name, " ", command.usage));
  return arguments;
}

}  // namespace tandem
