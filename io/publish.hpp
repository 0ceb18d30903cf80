// Files and folders that a reader sees whole or not at all: written under a temporary name, renamed into
// place.
//
// Temporary names are a process's own, NAME.tandem-HOST-PID.tmp beside NAME: of two writers of one path the
// later one wins, and nobody else's file is in the way. What a killed process of this host left there is
// removed by the next writer of NAME. Errors are kInput: path, step and the system's own words; until the
// rename the temporary is removed and whatever was published before stays as it was. Only regular files are
// replaced.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace tandem {

// Whether a writer of `name` may have left `entry` in the same folder.
bool is_temporary_of(std::string_view entry, std::string_view name);

// The name that this process gives to what stands in for `path`; ending: ".tmp" or ".old".
std::filesystem::path temporary_name(const std::filesystem::path& path, const char* ending);

// Throws where `path` exists and is no regular file: for those who want to know before they compute.
void require_replaceable(const std::filesystem::path& path);

// Writes, fsyncs, closes, renames over `path`, fsyncs the folder. The folder must exist.
void publish_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void publish_file(const std::filesystem::path& path, std::string_view text);

// The same for a file written piece by piece. Without publish(), the destructor removes the temporary.
class FilePublisher {
 public:
  explicit FilePublisher(std::filesystem::path path);
  ~FilePublisher();
  FilePublisher(const FilePublisher&) = delete;
  FilePublisher& operator=(const FilePublisher&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void publish();
  // Where nothing has that name yet, whoever else tries at the same time; false, and nothing done, where
  // something has.
  bool publish_new();
  const std::filesystem::path& path() const { return path_; }
  // For a library that opens files itself: it may write here, in place, and must have closed it before
  // publish().
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  [[noreturn]] void fail(const char* step, std::size_t unwritten = 0);
  void finish_writing();

  std::filesystem::path path_, temporary_;
  int file_ = -1;
};

// A folder filled under a temporary name: files go into staging(), publish() fsyncs them and puts the folder
// in the place of `path`, whose former content is deleted afterwards. Where the file system can exchange two
// names there is no instant without a whole folder at `path`; else the former one stands beside it for a
// moment, under a temporary name that ends in .old. Without publish(), the destructor removes the staging
// folder.
class FolderPublisher {
 public:
  explicit FolderPublisher(std::filesystem::path path);
  ~FolderPublisher();
  FolderPublisher(const FolderPublisher&) = delete;
  FolderPublisher& operator=(const FolderPublisher&) = delete;

  const std::filesystem::path& staging() const { return staging_; }
  void publish();

 private:
  std::filesystem::path path_, staging_;
  bool published_ = false;
};

}  // namespace tandem
