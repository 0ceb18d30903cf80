// Faults planted on purpose, for the test that shows what the mirror sees of them (tests/faults/README.md).
// Only that test's program is built with TANDEM_FAULTS. Everywhere else planted() is false while compiling,
// so that neither a faulty branch nor its name gets into a program. For .cpp files only: the test's program
// compiles those that call planted() and takes all else from the libraries.
#pragma once

#include <cstdint>

namespace tandem {

#ifdef TANDEM_FAULTS
// True where the environment variable TANDEM_FAULT has this name.
bool planted(const char* name);
// For a fault of one rank or one update: true where TANDEM_FAULT_RANK and TANDEM_FAULT_UPDATE, if set, name
// this one.
bool strikes(int rank, std::int64_t update);
#else
consteval bool planted(const char*) { return false; }
constexpr bool strikes(int, std::int64_t) { return false; }
#endif

}  // namespace tandem
