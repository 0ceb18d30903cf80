// From texts to a Config: config files are read line by line, command-line options join them and win.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "src/spec/run_spec.hpp"

namespace tandem {

struct Setting {
  std::string value;
  std::string origin;  // "configs/tiny.cfg:12", "command line"
};
using Settings = std::map<std::string, Setting>;  // by key

// A file holds lines `key = value`. `#` starts a comment at a line's start or after a blank; a value in
// double quotes (JSON's rules) may hold anything. A byte order mark and CRLF are tolerated. Relative paths
// start at `folder`, the file's own. Throws kUsage "FILE:LINE: ..." for a line that is none of these, an
// unknown key (with the nearest known one), a key given twice or a value outside its range.
Settings parse_config(std::string_view text, const std::string& file_name,
                      const std::filesystem::path& folder);

// Throws kInput where the file cannot be read.
Settings read_config_file(const std::filesystem::path& file);

// Adds one option of the command line; throws kUsage for an unknown key or a bad value.
void add_option(Settings& settings, const std::string& key, const std::string& value);

// The option wins over the file. Throws kUsage where values do not fit together.
Config make_config(const Settings& file, const Settings& options);

}  // namespace tandem
