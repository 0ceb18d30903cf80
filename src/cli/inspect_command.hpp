// `tandem inspect FILE|RUN_FOLDER`: what trajectory files hold, or whether they are as io/FORMAT.md says; for
// people or as JSON.
#pragma once

#include <filesystem>
#include <iosfwd>

namespace tandem {

struct InspectOptions {
  std::filesystem::path path;  // a trajectory file, or a run folder (all its *.h5 files)
  bool json = false;           // one JSON object: {"trajectories": [...]}, with `validate` {"files": [...]}
  bool validate = false;
};

// Returns 0; with `validate` 3 where a file is not valid, also one that is no HDF5 file at all. Without it
// throws kInput, one line, for a file that is no trajectory. A folder without *.h5 files is kInput for both.
int inspect_command(const InspectOptions& options, std::ostream& out);

}  // namespace tandem
