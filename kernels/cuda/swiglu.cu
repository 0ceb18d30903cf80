#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/swiglu.hpp"

namespace tandem {

namespace {

using namespace cuda;

template <class T>
TANDEM_KERNEL swiglu_kernel(MatrixView<T> h, MatrixView<const T> gu) {
  constexpr int kN = kUnit<T>;
  const T *gate = gu.row(block_x()), *up = gate + h.cols;
  T* out = h.row(block_x());
  for (std::int64_t c = thread_x() * kN; c < h.cols; c += thread_count() * kN) {
    float g[kN], u[kN];
    load(g, gate + c, h.cols - c);
    load(u, up + c, h.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) g[i] = g[i] / (1.0f + exp_f32(-g[i])) * u[i];
    store(out + c, g, h.cols - c);
  }
}

template <class T>
TANDEM_KERNEL swiglu_backward_kernel(MatrixView<T> dgu, MatrixView<const T> dh, MatrixView<const T> gu) {
  constexpr int kN = kUnit<T>;
  const T *gate = gu.row(block_x()), *up = gate + dh.cols, *gradient = dh.row(block_x());
  T *dgate = dgu.row(block_x()), *dup = dgate + dh.cols;
  for (std::int64_t c = thread_x() * kN; c < dh.cols; c += thread_count() * kN) {
    float g[kN], u[kN], d[kN];
    load(g, gate + c, dh.cols - c);
    load(u, up + c, dh.cols - c);
    load(d, gradient + c, dh.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) {
      const float sigmoid = 1.0f / (1.0f + exp_f32(-g[i]));
      const float of_gate = d[i] * u[i] * (sigmoid * (1.0f + g[i] * (1.0f - sigmoid)));
      u[i] = d[i] * (g[i] * sigmoid);
      g[i] = of_gate;
    }
    store(dgate + c, g, dh.cols - c);
    store(dup + c, u, dh.cols - c);
  }
}

template <class T>
void forward(const CudaContext& ctx, MatrixView<T> h, MatrixView<const T> gu) {
  launch(ctx, "swiglu_forward", swiglu_kernel<T>, {h.rows}, row_threads(h.cols, kUnit<T>), 0, h, gu);
}

template <class T>
void backward(const CudaContext& ctx, MatrixView<T> dgu, MatrixView<const T> dh, MatrixView<const T> gu) {
  launch(ctx, "swiglu_backward", swiglu_backward_kernel<T>, {dh.rows}, row_threads(dh.cols, kUnit<T>), 0, dgu,
         dh, gu);
}

}  // namespace

void swiglu_forward(const CudaContext& ctx, Matrix h, ConstMatrix gu) { forward(ctx, h, gu); }
void swiglu_forward(const CudaContext& ctx, Bf16Matrix h, ConstBf16Matrix gu) { forward(ctx, h, gu); }
void swiglu_backward(const CudaContext& ctx, Matrix dgu, ConstMatrix dh, ConstMatrix gu) {
  backward(ctx, dgu, dh, gu);
}
void swiglu_backward(const CudaContext& ctx, Bf16Matrix dgu, ConstBf16Matrix dh, ConstBf16Matrix gu) {
  backward(ctx, dgu, dh, gu);
}

}  // namespace tandem
