#include "src/train/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "io/publish.hpp"
#include "src/base/error.hpp"
#include "src/base/paths.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// Everything that a run writes.
constexpr std::array<std::string_view, 10> kNames = {
    "native.h5",   "mirror.h5", "native.snapshots", "mirror.snapshots", "adapter",
    "checkpoints", "spec.txt",  "execution.txt",    "run.log",          "run.lock"};

bool is_ours(const fs::path& entry, bool temporary_only = false) {
  const std::string name = entry.filename().string();
  for (const std::string_view ours : kNames)
    if ((name == ours && !temporary_only) || is_temporary_of(name, ours)) return true;
  return false;
}

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("run.out: ", path.string(), ": ", why));
}

// A folder that is absent will be made in the nearest one that exists.
void require_writable(const fs::path& folder) {
  std::error_code error;
  fs::path existing = fs::absolute(folder, error);
  while (!fs::exists(fs::symlink_status(existing, error)) && existing.has_relative_path())
    existing = existing.parent_path();
  if (!fs::is_directory(existing, error))
    fail(folder, cat("cannot be made: ", existing.string(), " is no folder"));
  if (access(existing.c_str(), W_OK | X_OK) != 0)
    fail(folder, cat("cannot be written: ", existing.string(), ": ", std::strerror(errno)));
}

// The folder exists. `our_log`: run.log is the caller's own; `our_lock`: so is run.lock.
void check_content(const RunFolder& folder, bool may_hold_run, bool our_log, bool our_lock) {
  std::error_code error;
  const fs::directory_iterator entries(folder.path, error);
  if (error) fail(folder.path, cat("cannot be read: ", error.message()));
  bool any = false, run = false;
  for (const fs::directory_entry& entry : entries) {
    if (our_log && entry.path() == folder.log()) continue;
    if (our_lock && entry.path() == folder.lock()) continue;
    any = true;
    run = run || is_ours(entry.path());
  }
  if (!any) return;
  if (!run) fail(folder.path, "holds other files and no run; choose another folder");
  if (!may_hold_run)
    fail(folder.path,
         "holds a run already; choose another folder, --resume auto to continue it, or --overwrite to "
         "replace it");
}

}  // namespace

void check_run_folder(const RunFolder& folder, bool may_hold_run) {
  std::error_code error;
  const fs::file_status status = fs::status(folder.path, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) fail(folder.path, "is a file, not a folder");
    check_content(folder, may_hold_run, false, false);
  }
  require_writable(folder.path);
}

void check_inputs_apart(const RunFolder& folder, const RunSpec& spec) {
  for (const auto& [key, input] : spec.inputs()) {
    const fs::path within = path_inside(input->path, folder.path);
    if (within.empty() || !is_ours(*within.begin())) continue;
    throw Error(ErrorKind::kUsage,
                cat(key, ": ", input->path, " lies in run.out, where this run would replace it; ",
                    "copy it elsewhere or choose another run.out"));
  }
}

RunFolderLock::RunFolderLock(const RunFolder& folder, bool may_hold_run) {
  std::error_code error;
  fs::create_directories(folder.path, error);
  if (error) fail(folder.path, cat("cannot be made: ", error.message()));
  const bool log_existed = fs::exists(folder.log(), error);
  file_ = open(folder.log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail(folder.log(), cat("cannot be opened: ", std::strerror(errno)));
  // A file system without locks (ENOLCK, ENOSYS, EOPNOTSUPP) has none to offer.
  const bool locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
  const bool taken = !locked && errno == EWOULDBLOCK;
  try {
    if (taken) {
      const std::string holder = lock_holder(folder.lock());
      fail(folder.path, cat("another run is going on there", holder.empty() ? "" : cat(" (", holder, ")"),
                            "; choose another folder, or end it first"));
    }
    named_ = std::make_unique<RunLock>(folder.lock(), locked);
    check_content(folder, may_hold_run, !log_existed, named_->taken_over().empty());
  } catch (...) {
    if (!taken && !log_existed) fs::remove(folder.log(), error);
    close(file_);
    throw;
  }
}

RunFolderLock::~RunFolderLock() { close(file_); }

void remove_temporaries(const RunFolder& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path, error))
    if (is_ours(entry.path(), true)) left.push_back(entry.path());
  for (const fs::path& path : left) fs::remove_all(path, error);
}

void prepare_run_folder(const RunFolder& folder, const RunFolderLock&) {
  std::error_code error;
  const fs::directory_iterator entries(folder.path, error);
  if (error) fail(folder.path, cat("cannot be read: ", error.message()));
  for (const fs::directory_entry& entry : entries) {
    if (!is_ours(entry.path()) || entry.path() == folder.lock() || entry.path() == folder.log()) continue;
    fs::remove_all(entry.path(), error);
    if (error) fail(entry.path(), cat("cannot be removed: ", error.message()));
  }
}

void empty_run_log(const RunFolder& folder, const RunFolderLock&) {
  std::error_code error;
  fs::resize_file(folder.log(), 0, error);
  if (error) fail(folder.log(), cat("cannot be emptied: ", error.message()));
}

}  // namespace tandem
