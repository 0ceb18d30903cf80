#include "src/cli/help.hpp"

#include <algorithm>

#include "src/base/text.hpp"
#include "src/spec/keys.hpp"

namespace tandem {

namespace {

constexpr std::size_t kWidth = 80;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

// `text` in lines of at most kWidth columns, all after the first indented.
std::string wrapped(const std::string& text, std::size_t first_column, std::size_t indent) {
  std::string out;
  std::size_t column = first_column;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t length = end - begin;
    if (column + length + 1 > kWidth && column > indent) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (begin > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(begin, length);
    column += length;
    begin = end + 1;
  }
  return out + "\n";
}

std::string key_help(const Key& key) {
  const std::string head = cat("  --", key.name, " ", key.placeholder(), "  (", key.default_text(), ")\n");
  return head + "      " + wrapped(cat(key.help, "; ", key.range_text()), 6, 6);
}

}  // namespace

std::string program_help(const std::vector<Command>& commands) {
  std::string text =
      "tandem: data-parallel LoRA training whose computation can be checked\n"
      "\n"
      "usage: tandem COMMAND [options] | tandem --version [--json]\n"
      "       tandem-mpirun -n RANKS tandem train --config FILE    on several ranks\n"
      "\n";
  for (const Command& command : commands) text += "  " + padded(command.name, 14) + command.summary + "\n";
  text +=
      "\n"
      "  tandem COMMAND --help    options with units and an example\n"
      "Every key of a configuration file is an option of the same name: --lora.rank 8\n"
      "exit: 0 ok, 1 internal, 2 usage, 3 input, 4 device, 5 disagreement, 6 stopped\n";
  return text;
}

std::string command_help(const Command& command) {
  std::string text = cat("tandem ", command.name, ": ", command.summary, "\n\nusage: ");
  const std::string usage = cat("tandem ", command.name, " ", command.usage);
  text += wrapped(usage, 7, 9) + "\n" + command.about + "\nexample:\n  " + command.example + "\n\noptions:\n";
  for (const OptionHelp& option : command.options) {
    const std::string head = padded(cat("  --", option.name, " ", option.argument), 22);
    text += head + wrapped(option.help, head.size(), 22);
  }
  text += padded("  --help", 22) + "this text\n";
  if (!command.keys.empty())
    text += "\nkeys, with unit and (default); they override those of a configuration file:\n";
  for (const std::string& name : command.keys) text += key_help(*find_key(name));
  return text;
}

}  // namespace tandem
