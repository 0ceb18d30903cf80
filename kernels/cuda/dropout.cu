#include <cmath>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/dropout.hpp"

namespace tandem {

namespace {

using namespace cuda;

struct Mask {
  RandomStream stream;
  std::uint64_t threshold;  // unit(u) >= p, as integers
  float kept;               // 1 - p
  const std::uint64_t* sample_key;
  const std::int32_t* position;
};

// A row's mask.
struct RowMask {
  RandomStream stream;
  std::uint64_t threshold, base;

  TANDEM_DEVICE bool keeps(std::int64_t c) const {
    return (stream.draw(base + static_cast<std::uint64_t>(c)) >> 11) >= threshold;
  }
};

TANDEM_DEVICE RowMask of_row(const Mask& mask, std::int64_t t, std::int64_t cols) {
  return {
      mask.stream, mask.threshold,
      mask.sample_key[t] + static_cast<std::uint64_t>(mask.position[t]) * static_cast<std::uint64_t>(cols)};
}

template <class T>
TANDEM_KERNEL dropout_kernel(MatrixView<T> y, MatrixView<const T> x, Mask mask) {
  constexpr int kN = kUnit<T>;
  const RowMask row = of_row(mask, block_x(), x.cols);
  const T* in = x.row(block_x());
  T* out = y.row(block_x());
  for (std::int64_t c = thread_x() * kN; c < x.cols; c += thread_count() * kN) {
    float v[kN];
    load(v, in + c, x.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) v[i] = row.keeps(c + i) ? v[i] / mask.kept : 0.0f;
    store(out + c, v, x.cols - c);
  }
}

template <class X, class Y>
TANDEM_KERNEL dropout_backward_kernel(MatrixView<X> dx, MatrixView<const Y> dy, Mask mask) {
  constexpr int kN = kUnit<X>;
  const RowMask row = of_row(mask, block_x(), dy.cols);
  const Y* in = dy.row(block_x());
  X* out = dx.row(block_x());
  for (std::int64_t c = thread_x() * kN; c < dy.cols; c += thread_count() * kN) {
    float v[kN], g[kN];
    load(v, out + c, dy.cols - c);
    load(g, in + c, dy.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) v[i] += row.keeps(c + i) ? g[i] / mask.kept : 0.0f;
    store(out + c, v, dy.cols - c);
  }
}

Mask on_device(const DropoutMask& mask) {
  // unit is a multiple of 2^-53, and p * 2^53 is exact.
  return {mask.stream, static_cast<std::uint64_t>(std::ceil(mask.p * 0x1p53)),
          static_cast<float>(1.0 - mask.p), mask.sample_key.data(), mask.position.data()};
}

template <class T>
void forward(const CudaContext& ctx, MatrixView<T> y, MatrixView<const T> x, const DropoutMask& mask) {
  launch(ctx, "dropout", dropout_kernel<T>, {x.rows}, row_threads(x.cols, kUnit<T>), 0, y, x,
         on_device(mask));
}

template <class X, class Y>
void backward(const CudaContext& ctx, MatrixView<X> dx, MatrixView<const Y> dy, const DropoutMask& mask) {
  launch(ctx, "dropout_backward", dropout_backward_kernel<X, Y>, {dy.rows}, row_threads(dy.cols, kUnit<X>), 0,
         dx, dy, on_device(mask));
}

}  // namespace

void dropout(const CudaContext& ctx, Matrix y, ConstMatrix x, const DropoutMask& mask) {
  forward(ctx, y, x, mask);
}
void dropout(const CudaContext& ctx, Bf16Matrix y, ConstBf16Matrix x, const DropoutMask& mask) {
  forward(ctx, y, x, mask);
}
void dropout_backward(const CudaContext& ctx, Matrix dx, ConstMatrix dy, const DropoutMask& mask) {
  backward(ctx, dx, dy, mask);
}
void dropout_backward(const CudaContext& ctx, Matrix dx, ConstBf16Matrix dy, const DropoutMask& mask) {
  backward(ctx, dx, dy, mask);
}
void dropout_backward(const CudaContext& ctx, Bf16Matrix dx, ConstBf16Matrix dy, const DropoutMask& mask) {
  backward(ctx, dx, dy, mask);
}

}  // namespace tandem
