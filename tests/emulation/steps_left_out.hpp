// Barriers and waits for copies that a test can leave out one at a time, in a copy of a kernel's source:
// include this, `#define barrier barrier_unless_left_out` and the others alike, give the kernel's namespace
// another name, include the .cu.
#pragma once

#include <set>
#include <source_location>

#include "kernels/cuda/ptx.hpp"

namespace tandem::cuda {

struct Steps {
  std::set<unsigned> lines;  // of the steps that have run
  unsigned left_out = 0;     // a line; 0: none
};
inline Steps steps;

inline void warp_barrier_unless_left_out(std::source_location at = std::source_location::current()) {
  steps.lines.insert(at.line());
  if (steps.left_out != at.line()) warp_barrier();
}

inline void barrier_unless_left_out(std::source_location at = std::source_location::current()) {
  steps.lines.insert(at.line());
  if (steps.left_out != at.line()) barrier();
}

template <int kPending>
void cp_async_wait_unless_left_out(std::source_location at = std::source_location::current()) {
  steps.lines.insert(at.line());
  if (steps.left_out != at.line()) cp_async_wait<kPending>();
}

}  // namespace tandem::cuda
