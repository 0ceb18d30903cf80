// Errors of CUDA's calls.
#pragma once

#include <cuda_runtime_api.h>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem::cuda {

[[noreturn]] inline void fail(cudaError_t error, const std::string& what) {
  throw Error(ErrorKind::kDevice, cat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error),
                                      ", ", static_cast<int>(error), ")"));
}

// Throws kDevice with one line, `what` and CUDA's own words, where a call did not succeed.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // forgotten: or the next call that asks would report it as its own
  fail(error, what);
}

}  // namespace tandem::cuda
