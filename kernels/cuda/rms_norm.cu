// A block a row, two passes over it: the second finds the row in the first-level cache.
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/rms_norm.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = kUnit<float>;

struct Shared {
  float squares[32], projection[32];
};

// 1/sqrt(mean of squares + eps)
TANDEM_DEVICE float rstd_of(float squares, std::int64_t n, float eps) {
  return 1.0f / sqrt_f32(squares / static_cast<float>(n) + eps);
}

template <class Y>
TANDEM_KERNEL rms_norm_kernel(MatrixView<Y> y, ConstMatrix x, const float* w, float eps) {
  Shared& shared = block_shared<Shared>();
  const float* in = x.row(block_x());
  Y* out = y.row(block_x());
  const std::int64_t first = thread_x() * kN, step = thread_count() * kN;
  float squares = 0.0f;
  for (std::int64_t c = first; c < x.cols; c += step) {
    float v[kN];
    load(v, in + c, x.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) squares += v[i] * v[i];
  }
  const float rstd = rstd_of(block_sum(squares, shared.squares), x.cols, eps);
  for (std::int64_t c = first; c < x.cols; c += step) {
    float v[kN], weight[kN];
    load(v, in + c, x.cols - c);
    load(weight, w + c, x.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) v[i] = weight[i] * (v[i] * rstd);
    store(out + c, v, x.cols - c);
  }
}

template <bool kAccumulate, class Y>
TANDEM_KERNEL rms_norm_backward_kernel(Matrix dx, MatrixView<const Y> dy, ConstMatrix x, const float* w,
                                       float eps) {
  Shared& shared = block_shared<Shared>();
  const float* in = x.row(block_x());
  const Y* gradient = dy.row(block_x());
  float* out = dx.row(block_x());
  const std::int64_t first = thread_x() * kN, step = thread_count() * kN;
  float squares = 0.0f, projection = 0.0f;
  for (std::int64_t c = first; c < x.cols; c += step) {
    float v[kN], g[kN], weight[kN];
    load(v, in + c, x.cols - c);
    load(g, gradient + c, x.cols - c);
    load(weight, w + c, x.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) {
      squares += v[i] * v[i];
      projection += weight[i] * g[i] * v[i];
    }
  }
  const float rstd = rstd_of(block_sum(squares, shared.squares), x.cols, eps);
  const float along =
      rstd * rstd * rstd * block_sum(projection, shared.projection) / static_cast<float>(x.cols);
  for (std::int64_t c = first; c < x.cols; c += step) {
    float v[kN], g[kN], weight[kN], d[kN];
    load(v, in + c, x.cols - c);
    load(g, gradient + c, x.cols - c);
    load(weight, w + c, x.cols - c);
    if constexpr (kAccumulate) load(d, out + c, x.cols - c);
    TANDEM_UNROLL
    for (int i = 0; i < kN; ++i) {
      const float own = rstd * (weight[i] * g[i]) - along * v[i];
      d[i] = kAccumulate ? d[i] + own : own;
    }
    store(out + c, d, x.cols - c);
  }
}

template <class Y>
void forward(const CudaContext& ctx, MatrixView<Y> y, ConstMatrix x, std::span<const float> w, float eps) {
  launch(ctx, "rms_norm_forward", rms_norm_kernel<Y>, {x.rows}, row_threads(x.cols, kN), sizeof(Shared), y, x,
         w.data(), eps);
}

template <class Y>
void backward(const CudaContext& ctx, Matrix dx, MatrixView<const Y> dy, ConstMatrix x,
              std::span<const float> w, float eps, bool accumulate) {
  launch(ctx, "rms_norm_backward",
         accumulate ? rms_norm_backward_kernel<true, Y> : rms_norm_backward_kernel<false, Y>, {x.rows},
         row_threads(x.cols, kN), sizeof(Shared), dx, dy, x, w.data(), eps);
}

}  // namespace

void rms_norm_forward(const CudaContext& ctx, Matrix y, ConstMatrix x, std::span<const float> w, float eps) {
  forward(ctx, y, x, w, eps);
}
void rms_norm_forward(const CudaContext& ctx, Bf16Matrix y, ConstMatrix x, std::span<const float> w,
                      float eps) {
  forward(ctx, y, x, w, eps);
}
void rms_norm_backward(const CudaContext& ctx, Matrix dx, ConstMatrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate) {
  backward(ctx, dx, dy, x, w, eps, accumulate);
}
void rms_norm_backward(const CudaContext& ctx, Matrix dx, ConstBf16Matrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate) {
  backward(ctx, dx, dy, x, w, eps, accumulate);
}

}  // namespace tandem
