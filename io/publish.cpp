#include "io/publish.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_io(const fs::path& path, const char* step, int error) {
  throw Error(ErrorKind::kInput,
              cat(path.string(), ": ", step, ": ", std::strerror(error), " (errno ", error, ")"));
}

// fsync of a folder makes the names in it durable; some network file systems do not offer it and say EINVAL.
void sync_path(const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_io(path, "open for fsync", errno);
  const bool failed = fsync(file) != 0 && errno != EINVAL;
  const int error = errno;
  close(file);
  if (failed) fail_io(path, "fsync", error);
}

void sync_folder(const fs::path& folder) { sync_path(folder.empty() ? "." : folder, O_DIRECTORY); }

void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory())
      sync_folder(entry.path());
    else
      sync_path(entry.path(), 0);
  }
  sync_folder(folder);
}

fs::path without_trailing_slash(fs::path path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

FilePublisher::FilePublisher(fs::path path) : path_(std::move(path)), temporary_(path_.string() + ".tmp") {
  if (unlink(temporary_.c_str()) != 0 && errno != ENOENT) fail("remove the former temporary of");
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail_io(path_, "create", error);
  }
}

FilePublisher::~FilePublisher() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FilePublisher::fail(const char* step) {
  const int error = errno;
  if (file_ >= 0) close(std::exchange(file_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  fail_io(path_, step, error);
}

void FilePublisher::write(const void* data, std::size_t bytes) {
  if (file_ < 0)
    throw Error(ErrorKind::kInternal, cat(path_.string(), ": written to after it was published"));
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void FilePublisher::publish() {
  if (file_ < 0) throw Error(ErrorKind::kInternal, cat(path_.string(), ": published twice"));
  if (fsync(file_) != 0) fail("fsync");
  if (close(std::exchange(file_, -1)) != 0) fail("close");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename into place");
  temporary_.clear();
  sync_folder(path_.parent_path());
}

void publish_file(const fs::path& path, std::span<const std::byte> bytes) {
  FilePublisher file(path);
  file.write(bytes.data(), bytes.size());
  file.publish();
}

void publish_file(const fs::path& path, std::string_view text) {
  publish_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

FolderPublisher::FolderPublisher(fs::path path)
    : path_(without_trailing_slash(std::move(path))), staging_(path_.string() + ".tmp") {
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error)) fail_io(path_, "create a folder", EEXIST);
  fs::remove_all(staging_, error);
  if (error) fail_io(staging_, "remove what a former run left", error.value());
  if (mkdir(staging_.c_str(), 0777) != 0) {
    const int reason = errno;
    staging_.clear();
    fail_io(path_, "create the folder", reason);
  }
}

FolderPublisher::~FolderPublisher() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

void FolderPublisher::publish() {
  if (published_) throw Error(ErrorKind::kInternal, cat(path_.string(), ": published twice"));
  sync_tree(staging_);
  fs::path former;  // where the content that was published before now stands
  if (rename(staging_.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) fail_io(path_, "rename into place", errno);
    if (renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      former = staging_;
    } else {
      former = path_.string() + ".old";
      std::error_code error;
      fs::remove_all(former, error);
      if (error) fail_io(former, "remove what a former run left", error.value());
      if (rename(path_.c_str(), former.c_str()) != 0) fail_io(path_, "rename away", errno);
      if (rename(staging_.c_str(), path_.c_str()) != 0) {
        const int reason = errno;
        rename(former.c_str(), path_.c_str());
        fail_io(path_, "rename into place", reason);
      }
    }
  }
  published_ = true;
  sync_folder(path_.parent_path());
  std::error_code ignored;  // the new content is in place; what remains of the old one is cleared next time
  if (!former.empty()) fs::remove_all(former, ignored);
  staging_.clear();
}

}  // namespace tandem
