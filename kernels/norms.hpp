// Norms of what training changes, for observation. In double, in an order fixed by the shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// Frobenius norm of b a, which is not formed: |b a|^2 = sum_ij (b^T b)_ij (a a^T)_ij. b [out,r], a [r,in].
// Relative error of the square: a few (out + in) 2^-53 |b|^2 |a|^2 / |b a|^2.
double product_norm(const CpuContext& ctx, ConstMatrix b, ConstMatrix a);

// 2-norm of x - y. Equal lengths.
double difference_norm(const CpuContext& ctx, std::span<const float> x, std::span<const float> y);

// Where a tensor lies in a flat array of a device.
struct TensorPiece {
  std::int64_t offset, size;
  std::int64_t first;  // sum of the sizes of the tensors before it, in digest order
};

// sums[i] = sum of squares of tensor i; of the difference x - y. In double, in an order fixed by the sizes,
// all tensors in one launch. sums [pieces] on the host, there when the call returns; x, y, pieces on the
// device. Uses scratch: tensor_sums_scratch_bytes().
void tensor_squares(const CudaContext& ctx, std::span<double> sums, std::span<const float> x,
                    std::span<const TensorPiece> pieces);
void tensor_difference_squares(const CudaContext& ctx, std::span<double> sums, std::span<const float> x,
                               std::span<const float> y, std::span<const TensorPiece> pieces);
std::size_t tensor_sums_scratch_bytes(std::int64_t n_pieces);

}  // namespace tandem
