// A folder of its own under the system's temporary directory, removed with all it holds.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "src/base/error.hpp"

namespace tandem {

class TemporaryFolder {
 public:
  // Throws kInput where none can be made.
  TemporaryFolder() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    if (error)
      throw Error(ErrorKind::kInput, cat("TMPDIR: no folder for temporary files: ", error.message()));
    std::string name = (parent / "tandem-check-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw Error(ErrorKind::kInput, cat(name, ": no temporary folder (TMPDIR): ", std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem
