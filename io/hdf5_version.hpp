#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// Of the library that is loaded: "1.10.8".
std::string hdf5_version();
// Of the headers that the program was built with.
std::string hdf5_built_version();

// Writes a small file as runs write theirs, and reads it. Throws what that throws.
void try_hdf5_file(const std::filesystem::path& file);

}  // namespace tandem
