// What a CudaContext holds, for those that call CUDA themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda_context.hpp"

namespace tandem {

struct CudaContext::Members {
  int device = 0;
  ProductMode mode = ProductMode::kF32;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  std::size_t shared_bytes_limit = 0;  // dynamic shared memory that a block may have

  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;

  // Page-locked memory that copies to the device go through, in halves: one is filled while the other is
  // read.
  std::byte* staging = nullptr;
  cudaEvent_t staging_read[2] = {};  // recorded after the copy out of a half

  // product.cu's own (the cuBLASLt handle, its workspace): made by the first product, ends before the stream.
  std::shared_ptr<void> product;
};

namespace cuda {
inline cudaStream_t stream_of(const CudaContext& ctx) { return static_cast<cudaStream_t>(ctx.stream()); }
}  // namespace cuda

}  // namespace tandem
