// Where files lie.
#pragma once

#include <filesystem>
#include <system_error>

namespace tandem {

// Where `path` lies inside `folder`, links followed: "." for the same place, "" where it does not.
inline std::filesystem::path path_inside(const std::filesystem::path& path,
                                         const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto within = std::filesystem::weakly_canonical(path, ignored)
                          .lexically_relative(std::filesystem::weakly_canonical(folder, ignored));
  return within.empty() || *within.begin() == ".." ? std::filesystem::path() : within;
}

}  // namespace tandem
