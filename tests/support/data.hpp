// Where the real test inputs lie: the variable TANDEM_DATA, else ../shared/data from the project's root.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem::support {

inline constexpr const char* kNoData = "the folder of real inputs is not here (TANDEM_DATA)";

inline std::optional<std::filesystem::path> data_path(const std::string& relative) {
  const char* variable = std::getenv("TANDEM_DATA");
  const std::filesystem::path root = variable ? variable : TANDEM_SOURCE_DIR "/../shared/data";
  const auto path = root / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

}  // namespace tandem::support
