// Where an operation runs: the first argument of every operation. One overload per kind of context.
#pragma once

#include <cstdint>

#include "src/base/arena.hpp"

namespace tandem {

class CudaContext;  // cuda_context.hpp

// CPU: a team of `threads` OpenMP threads per operation, and scratch memory of a fixed size for each of them.
// Results never depend on the number of threads.
class CpuContext {
 public:
  explicit CpuContext(int n_threads)
      : threads(n_threads),
        arena_(ArenaPlan::padded(sizeof(float) * kScratchFloats) * static_cast<std::size_t>(n_threads),
               "scratch") {
    scratch_ = arena_.take<float>(kScratchFloats * n_threads).data();
  }

  const int threads;

  // Floats of scratch a thread has: two blocks of attention scores.
  static constexpr std::int64_t kScratchFloats = std::int64_t{2} * 128 * 512;
  float* scratch(int thread) const { return scratch_ + thread * kScratchFloats; }

 private:
  Arena arena_;
  float* scratch_ = nullptr;
};

}  // namespace tandem
