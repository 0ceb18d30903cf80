// A block a tensor, whose threads take its elements in an order fixed by its size.
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/norms.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = kUnit<float>;
constexpr int kThreads = 512;

// y: null: of x alone.
TANDEM_KERNEL tensor_squares_kernel(double* sums, const float* x, const float* y, const TensorPiece* pieces) {
  double* shared = block_shared<double[32]>();
  const TensorPiece piece = pieces[block_x()];
  double sum = 0.0;
  for (std::int64_t i = thread_x() * kN; i < piece.size; i += thread_count() * kN) {
    float v[kN], w[kN] = {};
    load(v, x + piece.offset + i, piece.size - i);
    if (y != nullptr) load(w, y + piece.offset + i, piece.size - i);
    TANDEM_UNROLL
    for (int j = 0; j < kN; ++j) {
      const double d = static_cast<double>(v[j]) - static_cast<double>(w[j]);
      sum += d * d;
    }
  }
  sum = block_sum(sum, shared);
  if (thread_x() == 0) sums[block_x()] = sum;
}

void sums_of(const CudaContext& ctx, std::span<double> sums, const float* x, const float* y,
             std::span<const TensorPiece> pieces) {
  if (pieces.empty()) return;
  auto* on_device = static_cast<double*>(ctx.scratch(tensor_sums_scratch_bytes(std::ssize(pieces))));
  launch(ctx, "tensor_squares", tensor_squares_kernel, {std::ssize(pieces)}, kThreads, 32 * sizeof(double),
         on_device, x, y, pieces.data());
  copy_bytes_to_host(ctx, sums.data(), on_device, pieces.size() * sizeof(double));
}

}  // namespace

void tensor_squares(const CudaContext& ctx, std::span<double> sums, std::span<const float> x,
                    std::span<const TensorPiece> pieces) {
  sums_of(ctx, sums, x.data(), nullptr, pieces);
}

void tensor_difference_squares(const CudaContext& ctx, std::span<double> sums, std::span<const float> x,
                               std::span<const float> y, std::span<const TensorPiece> pieces) {
  sums_of(ctx, sums, x.data(), y.data(), pieces);
}

std::size_t tensor_sums_scratch_bytes(std::int64_t n_pieces) {
  return static_cast<std::size_t>(n_pieces) * sizeof(double);
}

}  // namespace tandem
