// The run folder (io/FORMAT.md): what a run leaves, and the rule that nothing there is overwritten unasked.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "src/spec/run_spec.hpp"
#include "src/train/run_lock.hpp"

namespace tandem {

struct RunFolder {
  std::filesystem::path path;
  std::filesystem::path trajectory() const { return path / "native.h5"; }
  std::filesystem::path mirror_trajectory() const { return path / "mirror.h5"; }
  std::filesystem::path adapter() const { return path / "adapter"; }
  std::filesystem::path spec() const { return path / "spec.txt"; }
  std::filesystem::path execution() const { return path / "execution.txt"; }
  std::filesystem::path log() const { return path / "run.log"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path lock() const { return path / "run.lock"; }
};

// Throws kInput where the folder cannot take a run: it is a file, or holds something and `may_hold_run` (to
// be replaced or continued) is false, or holds no run at all (it may be somebody's folder, so its content is
// not touched even with `may_hold_run`), or cannot be made or written. Changes nothing.
void check_run_folder(const RunFolder& folder, bool may_hold_run);

// Throws kUsage where an input lies among the files that the run would replace there.
void check_inputs_apart(const RunFolder& folder, const RunSpec& spec);

// The right to write into a run folder, until it is destroyed. Two jobs started at the same time both pass
// check_run_folder: without it they would mix their files. It is the file system's lock on run.log, which a
// killed process loses, and run.lock (run_lock.hpp), for file systems that have no locks or keep them to one
// machine.
class RunFolderLock {
 public:
  // Makes the folder. Throws kInput where that fails, where another run is going on in it, and where
  // check_run_folder would (another run may have ended there meanwhile).
  RunFolderLock(const RunFolder& folder, bool may_hold_run);
  ~RunFolderLock();
  RunFolderLock(const RunFolderLock&) = delete;
  RunFolderLock& operator=(const RunFolderLock&) = delete;

  // What to say of how it was got; empty: nothing.
  const std::string& note() const { return named_->taken_over(); }

 private:
  int file_ = -1;
  std::unique_ptr<RunLock> named_;
};

// What killed processes left there under temporary names, on whatever host. For the holder of the lock.
void remove_temporaries(const RunFolder& folder);

// Removes the files of an earlier run, and only those; not run.log and run.lock, which the holder of the lock
// has in use.
void prepare_run_folder(const RunFolder& folder, const RunFolderLock&);
// run.log without what an earlier run said.
void empty_run_log(const RunFolder& folder, const RunFolderLock&);

}  // namespace tandem
