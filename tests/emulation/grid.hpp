// One kernel's blocks and threads.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tandem::emulation {

struct GridShape {
  unsigned blocks[3] = {1, 1, 1};
  int threads = 32;
  std::size_t shared_bytes = 0;
};

// Calls `thread` once for every thread of the grid, in emulation::Order. One kernel at a time in a process.
void run_grid(const std::string& name, const GridShape& shape, const std::function<void()>& thread);

// "kernel NAME, block (x, y, z), thread t" where the calling host thread runs one, else "".
std::string running_place();
// The address is in the guard of a fiber's stack.
bool is_stack_guard(const void* address);

}  // namespace tandem::emulation
