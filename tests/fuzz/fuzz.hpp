// What the fuzz targets share. A target reads one input and returns; tandem::Error is how readers refuse,
// anything else that is thrown, a failed check, a sanitizer's report or a run-away ends the process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tandem::fuzz {

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

// Runs `read`; refusing is fine, if it is one line of the right kind.
template <class Read>
void may_refuse(Read read) {
  try {
    read();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kInput, "an input error of another kind");
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error of several lines");
  }
}

// A file in memory with a path, for readers that take one.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("fuzz", MFD_CLOEXEC)) { require(file_ >= 0, "no file in memory"); }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void set(const void* data, std::size_t size) {
    require(ftruncate(file_, 0) == 0 && pwrite(file_, data, size, 0) == static_cast<ssize_t>(size),
            "no file in memory");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace tandem::fuzz
