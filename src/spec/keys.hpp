// The table of keys: a key's name is the same in a config file, on the command line and in the canonical
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/spec/run_spec.hpp"

namespace tandem {

enum class KeyClass { kSpec, kExecution, kNeither };
const char* name_of(KeyClass key_class);

// What a key's value may be. Numbers: low <= value <= high, or strictly above low / below high where the end
// is open.
struct Range {
  double low = 0, high = 0;
  bool low_open = false, high_open = false;
  bool low_unbounded = false, high_unbounded = false;
};

struct Key {
  // Which field of Config the key sets; its type is the key's type.
  using Field = std::variant<std::int64_t* (*)(Config&), std::uint64_t* (*)(Config&), double* (*)(Config&),
                             bool* (*)(Config&), std::string* (*)(Config&),
                             std::vector<std::string>* (*)(Config&), RunSpec::Input* (*)(Config&)>;

  std::string name;
  KeyClass key_class;
  Field field;
  std::string unit = {};                  // "" = a plain number or a word
  std::string help = {};                  // one line
  Range range = {};                       // int64 and double
  std::vector<std::string> choices = {};  // words: one of these; lists: any subset, kept in this order
  std::string computed_default =
      {};                     // what the default is computed from, for keys whose struct default is -1
  bool only_default = false;  // sets what other keys default to; not in the canonical text
  bool is_path = false;       // in a config file, relative paths start at the file's folder

  // Parses and range-checks `value`. Throws kUsage: "lora.rank = x: must be ..."; the caller adds where it
  // was written.
  void set(Config& config, std::string_view value) const;
  // As in the canonical text, but paths as given; "" where the value is still to be computed.
  std::string get(const Config& config) const;
  // The value that get() writes, in the form that set() reads: strings without quotes.
  std::string plain(const Config& config) const;
  std::string placeholder() const;   // what stands for a value in a help text: "UPDATES", "PATH", "N"
  std::string default_text() const;  // "16", "3 % of T, rounded", "none"
  std::string range_text() const;    // "an integer from 1 to 4096", "right or drop", "a path"
};

// Sorted by class (spec, execution, neither), then as SPEC.md lists them.
const std::vector<Key>& keys();
// nullptr where there is none of this name.
const Key* find_key(std::string_view name);
std::vector<std::string> key_names();

}  // namespace tandem
