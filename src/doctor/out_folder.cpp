#include "src/doctor/out_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "io/hdf5_version.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// A run's adapter, moments and trajectory start at some tens of MiB.
constexpr double kLeastFree = 64 << 20, kLittleFree = 2.0 * 0x1p30;

class File {
 public:
  File(const fs::path& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

constexpr const char* kTwoRuns = "two runs started in one folder are not kept apart";

}  // namespace

OutFolder::OutFolder(Communicator& comm, const fs::path& out) : comm_(comm) {
  if (comm.rank() == 0) {
    std::error_code error;
    existing_ = fs::absolute(out, error).lexically_normal();
    while (!fs::exists(existing_, error) && existing_.has_relative_path())
      existing_ = existing_.parent_path();
    std::string name = existing_ / "tandem-doctor-XXXXXX";
    if (mkdtemp(name.data()))
      own_ = name;
    else
      failure_ = std::strerror(errno);
  }
  own_ = comm.all_gather_text(own_.string())[0];
}

OutFolder::~OutFolder() {
  std::error_code ignored;
  if (comm_.rank() == 0 && !own_.empty()) fs::remove_all(own_, ignored);
}

std::optional<Finding> OutFolder::disk() const {
  if (comm_.rank() != 0) return std::nullopt;
  const std::string where = existing_.string();
  if (own_.empty())
    return failure(ErrorKind::kInput,
                   cat(where, ": cannot be written: ", failure_, ": choose another --out"));
  struct statvfs system {};
  if (statvfs(existing_.c_str(), &system) != 0)
    return note(cat(where, ": the system does not say what is free: ", std::strerror(errno)));
  if (system.f_blocks == 0) return note(cat(where, ": the system does not say what is free"));
  const double free = static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize);
  const std::string text = cat(where, ": ", size_text(free), " free");
  if (free < kLeastFree) return failure(ErrorKind::kInput, cat(text, ": make room or choose another --out"));
  if (system.f_files > 0 && system.f_favail == 0)
    return failure(ErrorKind::kInput,
                   cat(where, ": no more files can be made: remove some or choose another --out"));
  if (free < kLittleFree) return note(cat(text, ": long runs and checkpoints may need more"));
  return ok(text);
}

std::optional<Finding> OutFolder::locks() {
  if (own_.empty()) return std::nullopt;
  return comm_.rank() == 0 ? own_lock() : others_lock();
}

// Rank 0 holds the lock between the barriers.
std::optional<Finding> OutFolder::own_lock() {
  const fs::path path = own_ / "lock";
  const File first(path, O_RDWR | O_CREAT), second(path, O_RDWR);
  const int error =
      first.number() < 0 || second.number() < 0 || flock(first.number(), LOCK_EX | LOCK_NB) != 0 ? errno : 0;
  comm_.barrier();
  const bool twice = error == 0 && flock(second.number(), LOCK_EX | LOCK_NB) == 0;
  comm_.barrier();
  const char* setting = std::getenv("HDF5_USE_FILE_LOCKING");
  const std::string hdf5 = cat("HDF5_USE_FILE_LOCKING ", setting ? cat("is ", setting) : "is not set");
  if (error != 0)
    return note(cat("flock: ", std::strerror(error), ": ", kTwoRuns,
                    "; h5py and h5dump open files there with HDF5_USE_FILE_LOCKING=FALSE only (", hdf5, ")"));
  if (twice) return note(cat("flock does nothing there: ", kTwoRuns));
  return ok(cat("flock keeps a second one out; ", hdf5));
}

std::optional<Finding> OutFolder::others_lock() {
  comm_.barrier();
  // Not opened before it is there: some file systems remember for a while that a name is absent.
  const File file(own_ / "lock", O_RDWR);
  const int error = file.number() < 0 ? errno : 0;
  const bool taken = error == 0 && flock(file.number(), LOCK_EX | LOCK_NB) == 0;
  if (taken) flock(file.number(), LOCK_UN);
  comm_.barrier();
  if (error != 0)
    return note(cat("does not see rank 0's folder: ", std::strerror(error),
                    ": a run that goes on from another node needs a file system that all nodes share"));
  if (taken) return note(cat("does not see rank 0's locks: ", kTwoRuns, " if they are on different nodes"));
  return std::nullopt;
}

std::optional<Finding> OutFolder::hdf5_file() const {
  if (comm_.rank() != 0 || own_.empty()) return std::nullopt;
  try {
    try_hdf5_file(own_ / "try.h5");
    return ok("a file was written and read");
  } catch (const Error& error) {
    return failure(error.kind(),
                   cat(error.what(), ": set HDF5_USE_FILE_LOCKING=FALSE or choose another --out"));
  }
}

}  // namespace tandem
