// Work on a file of unknown origin, where a library may crash, loop or ask for any amount of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tandem {

struct ContainedLimits {
  std::uint64_t bytes = std::uint64_t{512} << 20;  // of memory beside what this process has; and 16 times
                                                   // the file's size. Not under the sanitizers
  std::uint64_t seconds = 30;                      // of processor time; and one more per 10 MB of the file
};

// Runs `work` in a child process and returns its text. Throws the tandem::Error that `work` threw, and
// kInput, one line with the file, where the child was ended by a signal or its limits. What `work` changes in
// memory is lost. Not for a process that runs MPI.
std::string run_contained(const std::filesystem::path& file, const std::function<std::string()>& work,
                          const ContainedLimits& limits = {});

}  // namespace tandem
