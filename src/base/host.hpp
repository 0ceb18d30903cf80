// What this machine calls itself.
#pragma once

#include <string>

namespace tandem {

// As the system has it, perhaps with its domain; "unknown-host" where it does not say.
std::string host_name();
// Up to the first dot: for lines that people read.
std::string short_host_name();

}  // namespace tandem
