// How long each kernel runs, by its name: the kernels' NVTX ranges are taken in by this program itself, and a
// CUDA event is put before and after each.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda_context.hpp"

namespace tandem::testing {

struct KernelTime {
  std::string name;
  long launches = 0;
  double seconds = 0.0;
};

// Until stop, of what is given to ctx's stream. Costs a little time of its own.
void start_kernel_times(const CudaContext& ctx);
// Waits for the stream. The longest first; empty where CUDA's NVTX is older than 3.2 (CUDA 12 and before) and
// lets no program take in its own ranges.
std::vector<KernelTime> stop_kernel_times(const CudaContext& ctx);

}  // namespace tandem::testing
