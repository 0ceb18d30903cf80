// The run folder (io/FORMAT.md): what a run leaves, and the rule that nothing there is overwritten unasked.
#pragma once

#include <filesystem>

namespace tandem {

struct RunFolder {
  std::filesystem::path path;
  std::filesystem::path trajectory() const { return path / "native.h5"; }
  std::filesystem::path adapter() const { return path / "adapter"; }
  std::filesystem::path spec() const { return path / "spec.txt"; }
  std::filesystem::path execution() const { return path / "execution.txt"; }
  std::filesystem::path log() const { return path / "run.log"; }
};

// Throws kInput where the folder cannot take a run: it is a file, or holds something and `overwrite` is false, or
// holds no run at all (it may be somebody's folder, so its content is not touched even with `overwrite`).
void check_run_folder(const RunFolder& folder, bool overwrite);

// Makes the folder and removes the files of an earlier run, and only those. After check_run_folder.
void prepare_run_folder(const RunFolder& folder);

}  // namespace tandem
