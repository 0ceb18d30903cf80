// Rules on a snapshot file (/snapshot/<step> of a trajectory).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/format/findings.hpp"

namespace tandem::format {

// The adapter that a snapshot is of; names empty: not known.
struct AdapterShapes {
  std::vector<std::string> names;
  std::vector<std::int64_t> shapes;  // [P, 2]
};

// An HDF5 file that has the groups of a snapshot and is no trajectory. Throws what opening it throws.
bool looks_like_snapshot(const std::filesystem::path& file);

// where: in front of the names of what is wrong, "/snapshot/40" or "".
void check_snapshot(const std::filesystem::path& file, const std::string& where, const AdapterShapes& adapter,
                    Findings& findings, std::vector<std::string>& present, std::vector<std::string>& ignored);

}  // namespace tandem::format
