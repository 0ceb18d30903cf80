// `tandem compare A.h5 B.h5 [C.h5 ...]`: two trajectories, level by level, to a verdict.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <vector>

namespace tandem {

struct CompareJob {
  // Trajectory files, or run folders: of two folders their native.h5; one alone is its native.h5 and
  // mirror.h5. From the third on: replicates of the first.
  std::vector<std::filesystem::path> paths;
  bool across_specs = false, json = false, all = false, colour = false;
};

// Returns 0 for PASS, 5 otherwise. Throws kInput, one line, for what cannot be read and for a replicate that
// is none; kUsage for too few files.
int compare_command(const CompareJob& job, std::ostream& out);

}  // namespace tandem
