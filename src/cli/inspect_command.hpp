// `tandem inspect FILE|RUN_FOLDER`: what trajectory files hold, for people or as JSON.
#pragma once

#include <filesystem>
#include <iosfwd>

namespace tandem {

struct InspectOptions {
  std::filesystem::path path;  // a trajectory file, or a run folder (all its *.h5 files)
  bool json = false;           // one JSON object: {"trajectories": [...]}
};

// Returns 0. Throws kInput, one line, for a file that is no trajectory and a folder without one.
int inspect_command(const InspectOptions& options, std::ostream& out);

}  // namespace tandem
