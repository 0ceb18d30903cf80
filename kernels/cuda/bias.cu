#include "kernels/bias.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"

namespace tandem {

namespace {

using namespace cuda;

template <class T>
TANDEM_KERNEL add_bias_kernel(MatrixView<T> y, const float* b) {
  constexpr int kN = kUnit<float>;
  T* row = y.row(block_x());
  for (std::int64_t c = thread_x() * kN; c < y.cols; c += thread_count() * kN) {
    float v[kN], bias[kN];
    load(v, row + c, y.cols - c);
    load(bias, b + c, y.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) v[i] += bias[i];
    store(row + c, v, y.cols - c);
  }
}

template <class T>
void add(const CudaContext& ctx, MatrixView<T> y, std::span<const float> b) {
  launch(ctx, "add_bias", add_bias_kernel<T>, {y.rows}, row_threads(y.cols, kUnit<float>), 0, y, b.data());
}

}  // namespace

void add_bias(const CudaContext& ctx, Matrix y, std::span<const float> b) { add(ctx, y, b); }
void add_bias(const CudaContext& ctx, Bf16Matrix y, std::span<const float> b) { add(ctx, y, b); }

}  // namespace tandem
