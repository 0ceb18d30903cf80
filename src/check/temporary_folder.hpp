// A folder of its own under the system's temporary directory, removed with all it holds.
#pragma once

#include <filesystem>
#include <thread>

namespace tandem {

// Also where INT, TERM or HUP end the process: a thread removes it then, and lets the signal do what it would
// have done. Signals that are handled or ignored already are left as they are. One at a time in a process.
class TemporaryFolder {
 public:
  // Throws kInput where none can be made.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  void watch();

  std::filesystem::path path_;
  std::thread watcher_;
};

}  // namespace tandem
