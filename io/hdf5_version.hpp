#pragma once

#include <string>

namespace tandem {

// Of the library that is loaded: "1.10.8".
std::string hdf5_version();

}  // namespace tandem
