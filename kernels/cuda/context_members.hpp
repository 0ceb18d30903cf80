// What a CudaContext holds, for those that call CUDA themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <unordered_map>

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

  // Page-locked memory that copies to the device go through: a ring of pieces, each filled from its start.
  static constexpr int kPieces = 8;
  static constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
  std::byte* staging = nullptr;
  cudaEvent_t piece_read[kPieces] = {};  // recorded when the last copy out of a piece has been given
  int piece = 0;
  std::size_t piece_used = 0;

  std::unordered_map<const void*, std::size_t> shared_bytes_allowed;  // by kernel

  // product.cu's own (the cuBLASLt handle, its workspace): made by the first product, ends before the stream.
  std::shared_ptr<void> product;
};

namespace cuda {
inline cudaStream_t stream_of(const CudaContext& ctx) { return static_cast<cudaStream_t>(ctx.stream()); }
}  // namespace cuda

}  // namespace tandem
