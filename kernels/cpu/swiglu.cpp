#include "kernels/swiglu.hpp"

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/vector_math.hpp"

namespace tandem {

namespace {
constexpr std::int64_t kRows = 8;  // rows a task
}

void swiglu_forward(const CpuContext& ctx, Matrix h, ConstMatrix gu) {
  cpu::parallel_pieces(ctx, h.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float *g = gu.row(t), *u = gu.row(t) + h.cols;
      float* out = h.row(t);
#pragma omp simd
      for (std::int64_t i = 0; i < h.cols; ++i) out[i] = g[i] / (1.0f + cpu::exp_f32(-g[i])) * u[i];
    }
  });
}

void swiglu_backward(const CpuContext& ctx, Matrix dgu, ConstMatrix dh, ConstMatrix gu) {
  cpu::parallel_pieces(ctx, dh.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float *g = gu.row(t), *u = gu.row(t) + dh.cols, *d = dh.row(t);
      float *dg = dgu.row(t), *du = dgu.row(t) + dh.cols;
#pragma omp simd
      for (std::int64_t i = 0; i < dh.cols; ++i) {
        const float gate = g[i], up = u[i];
        const float sigmoid = 1.0f / (1.0f + cpu::exp_f32(-gate));
        dg[i] = d[i] * up * (sigmoid * (1.0f + gate * (1.0f - sigmoid)));
        du[i] = d[i] * (gate * sigmoid);
      }
    }
  });
}

}  // namespace tandem
