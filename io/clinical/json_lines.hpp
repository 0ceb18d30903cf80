// JSON Lines one value at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/text/line_reader.hpp"

namespace tandem {

class JsonLines {
 public:
  struct Value {
    nlohmann::json json;
    std::int64_t line = 0;
  };

  // Throws kInput as LineReader does.
  explicit JsonLines(const std::filesystem::path& file);
  // None at the end; blank lines are passed over. Throws kInput with file, line and column.
  std::optional<Value> next();
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  LineReader reader_;
  std::vector<Line> block_;
  std::size_t at_ = 0;
};

}  // namespace tandem
