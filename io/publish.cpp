#include "io/publish.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/host.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_io(const fs::path& path, const char* step, int error, std::size_t unwritten = 0) {
  const bool no_room = error == ENOSPC || error == EDQUOT;
  throw Error(ErrorKind::kInput,
              cat(path.string(), ": ", step, ": ", std::strerror(error), " (errno ", error, ")",
                  no_room && unwritten > 0 ? cat(", ", unwritten, " bytes did not fit") : ""));
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

constexpr std::string_view kMark = ".tandem-";

std::string mark_of_host() { return cat(kMark, host_name(), "-"); }

fs::path own_name(const fs::path& path, const char* ending) {
  return path.string() + mark_of_host() + std::to_string(getpid()) + ending;
}

// What processes of this host that are no more left of `path`, or this one itself.
void remove_leftovers(const fs::path& path) {
  const std::string begin = path.filename().string() + mark_of_host();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin)) continue;
    pid_t pid = 0;
    const char* const digits = name.data() + begin.size();
    const auto [end, bad] = std::from_chars(digits, name.data() + name.size(), pid);
    if (bad != std::errc() || pid <= 0 ||
        (std::string_view(end) != ".tmp" && std::string_view(end) != ".old"))
      continue;
    if (pid != getpid() && (kill(pid, 0) == 0 || errno != ESRCH)) continue;
    std::error_code ignored;  // another writer may have done it
    fs::remove_all(entry.path(), ignored);
  }
}

fs::path without_trailing_slash(fs::path path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

bool is_temporary_of(std::string_view entry, std::string_view name) {
  return entry.starts_with(name) && entry.substr(name.size()).starts_with(kMark) &&
         (entry.ends_with(".tmp") || entry.ends_with(".old"));
}

fs::path temporary_name(const fs::path& path, const char* ending) { return own_name(path, ending); }

void require_replaceable(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw Error(ErrorKind::kInput,
                cat(path.string(), ": exists and is no regular file; choose another name"));
}

FilePublisher::FilePublisher(fs::path path) : path_(std::move(path)) {
  require_replaceable(path_);
  remove_leftovers(path_);
  temporary_ = own_name(path_, ".tmp");
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

void FilePublisher::fail(const char* step, std::size_t unwritten) {
  const int error = errno;
  if (file_ >= 0) close(std::exchange(file_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  fail_io(path_, step, error, unwritten);
}

void FilePublisher::write(const void* data, std::size_t bytes) {
  if (file_ < 0)
    throw Error(ErrorKind::kInternal, cat(path_.string(), ": written to after it was published"));
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", bytes);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void FilePublisher::finish_writing() {
  if (file_ < 0) throw Error(ErrorKind::kInternal, cat(path_.string(), ": published twice"));
  if (fsync(file_) != 0) fail("fsync");
  if (close(std::exchange(file_, -1)) != 0) fail("close");
}

void FilePublisher::publish() {
  finish_writing();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename into place");
  temporary_.clear();
  sync_folder(path_.parent_path());
}

bool FilePublisher::publish_new() {
  finish_writing();
  if (link(temporary_.c_str(), path_.c_str()) == 0) {
    unlink(std::exchange(temporary_, {}).c_str());
  } else if (errno == EEXIST) {
    return false;
  } else if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) {
    temporary_.clear();  // a file system without hard links
  } else {
    if (errno == EEXIST) return false;
    // Nor that: an empty file takes the name first.
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) return false;
    if (file < 0 || close(file) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0)
      fail("give it its name");
    temporary_.clear();
  }
  sync_folder(path_.parent_path());
  return true;
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
    : path_(without_trailing_slash(std::move(path))), staging_(own_name(path_, ".tmp")) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path_, error);
  if (fs::exists(status) && !fs::is_directory(status)) fail_io(path_, "create a folder", EEXIST);
  remove_leftovers(path_);
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
      former = own_name(path_, ".old");
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
