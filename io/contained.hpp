// Work on a file of unknown origin, where a library may crash, loop or ask for any amount of memory.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace tandem {

// Runs `work` in a child process and returns its text. The child may take 1 GiB and 16 times the file's size
// of memory beside what this process has, and 30 s of processor time and one more per 10 MB of the file.
// Throws the tandem::Error that `work` threw, and kInput, one line with the file, where the child was ended
// by a signal or these limits. What `work` changes in memory is lost. Not for a process that runs MPI.
std::string run_contained(const std::filesystem::path& file, const std::function<std::string()>& work);

}  // namespace tandem
