// The members of one large JSON object, one at a time: a file of any size needs the memory of one member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "io/clinical/fold.hpp"

namespace tandem {

class JsonMembers {
 public:
  struct Member {
    std::string key;
    nlohmann::json value;
    std::int64_t line = 0;  // 1-based, of the key
  };

  // Throws kInput where the file cannot be read or is compressed, UTF-16 or UTF-32.
  explicit JsonMembers(const std::filesystem::path& file);
  // None behind the last member. Throws kInput with file, line and column: bad JSON (strictly read), a key
  // that stands twice, a member longer than 64 MiB, text behind the object.
  std::optional<Member> next();
  const std::string& name() const { return name_; }

 private:
  int peek();
  void step();
  void skip_blanks();
  [[noreturn]] void fail(const std::string& what) const;
  void expect(char c, const char* where);
  // Take text as it stands in the file.
  std::string take_string();
  std::string take_value();
  void take(std::string& text);
  void end();

  std::string name_;
  std::ifstream in_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, filled_ = 0;
  std::int64_t line_ = 1, column_ = 1;
  enum class State { kBegin, kMembers, kEnd } state_ = State::kBegin;
  std::unordered_set<TextKey, TextKeyHash> keys_;
};

}  // namespace tandem
