// JSON as the mirror takes it: UTF-8, and no key twice in one object, since readers differ in which they
// keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::mirror {

// Throws std::invalid_argument with what is wrong.
nlohmann::json parse_json(std::string_view text);

// kInput naming the file.
nlohmann::json read_json_file(const std::filesystem::path& path);
std::string read_text_file(const std::filesystem::path& path);

}  // namespace tandem::mirror
