#include "kernels/rms_norm.hpp"

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/rms_norm_row.hpp"

namespace tandem {

namespace {
constexpr std::int64_t kRows = 16;  // rows a task
}

void rms_norm_forward(const CpuContext& ctx, Matrix y, ConstMatrix x, std::span<const float> w, float eps) {
  cpu::parallel_pieces(ctx, x.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      cpu::row_norm(y.row(t), x.row(t), w.data(), x.cols, cpu::row_rstd(x.row(t), x.cols, eps));
  });
}

void rms_norm_backward(const CpuContext& ctx, Matrix dx, ConstMatrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate) {
  cpu::parallel_pieces(ctx, x.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float rstd = cpu::row_rstd(x.row(t), x.cols, eps);
      const float projection = cpu::row_projection(dy.row(t), x.row(t), w.data(), x.cols, rstd);
      float* out = dx.row(t);
      const float *g = dy.row(t), *in = x.row(t);
      if (accumulate) {
#pragma omp simd
        for (std::int64_t c = 0; c < x.cols; ++c) out[c] += rstd * (w[c] * g[c]) - projection * in[c];
      } else {
#pragma omp simd
        for (std::int64_t c = 0; c < x.cols; ++c) out[c] = rstd * (w[c] * g[c]) - projection * in[c];
      }
    }
  });
}

}  // namespace tandem
