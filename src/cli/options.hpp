// A command's line of options: keys of the configuration under their own names, and the command's own
// options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/spec/settings.hpp"

namespace tandem {

// An option that is no key, `--out DIR`; without an argument a switch.
struct OptionHelp {
  std::string name;      // "out"
  std::string argument;  // "DIR"; "" for a switch
  std::string help;
  bool required = false;
  std::string key = {};  // a short name for this key: --model for model.path
  bool repeatable = false;
};

struct Arguments {
  std::map<std::string, std::string> options;  // by name; switches that are given have the value ""
  std::map<std::string, std::vector<std::string>> lists;  // repeatable options, in the order given
  std::vector<std::string> positional;
  Settings keys;
  std::vector<std::string> words;  // as given
  bool help = false;

  bool has(const std::string& name) const { return options.contains(name); }
  std::string get(const std::string& name, const std::string& otherwise = "") const {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
  }
};

struct Command {
  std::string name;
  std::string summary;  // one line of `tandem --help`
  std::string usage;    // what follows the name
  std::string about;    // lines of `tandem NAME --help`: what it reads, writes, its units
  std::string example;  // one command line that works
  std::vector<OptionHelp> options = {};
  std::vector<std::string> keys = {};         // the keys it takes
  std::vector<std::string> positionals = {};  // names of the arguments that must follow: "FILE"
  bool last_may_lack = false;                 // the last of the positionals may be left out
  bool last_may_repeat = false;               // any number of the last
  int (*run)(const Arguments&) = nullptr;     // returns the exit code
  bool one_process = false;                   // refused under a launcher of several ranks
};

// Throws kUsage: an unknown option (with the nearest known one), one given twice, a missing or bad value, a
// missing or superfluous argument. Required options and arguments are not asked for where --help is given.
Arguments parse_arguments(const Command& command, const std::vector<std::string>& words);

}  // namespace tandem
