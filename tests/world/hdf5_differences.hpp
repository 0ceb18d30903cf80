// Compares two HDF5 files dataset by dataset, bit for bit, whatever they hold.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tandem::world_test {

struct FileComparison {
  std::vector<std::string> compared;     // paths of the datasets seen in both files
  std::vector<std::string> differences;  // one line each; empty: the same
};

// `ignored(path)`: datasets, and attributes as "GROUP@NAME", that may differ. Attributes of datasets and
// groups are compared too. External links are not followed.
FileComparison compare_hdf5(const std::filesystem::path& a, const std::filesystem::path& b,
                            const std::function<bool(const std::string& path)>& ignored);

}  // namespace tandem::world_test
