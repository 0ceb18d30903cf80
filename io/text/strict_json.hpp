// JSON read without tolerance: duplicate keys, NaN and Infinity, text after the value, invalid UTF-8 and
// nesting beyond 100 levels are errors that name file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tandem {

// `text` begins at `column` of line `line` of `file`. Lines and columns count from 1, columns in bytes.
// Throws kInput.
nlohmann::json parse_strict_json(std::string_view text, const std::string& file, std::int64_t line = 1,
                                 std::int64_t column = 1);

// Throws kInput naming the file where it cannot be read, too.
nlohmann::json read_strict_json(const std::filesystem::path& file);

// What a file said, fit for an error's one line: control characters become blanks.
std::string without_controls(std::string text);

// The whole file; throws kInput naming it.
std::string read_text_file(const std::filesystem::path& file);

}  // namespace tandem
