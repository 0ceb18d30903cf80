#include "kernels/rope.hpp"

#include <array>
#include <cmath>

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/rms_norm_row.hpp"

namespace tandem {

namespace {

constexpr std::int64_t kRows = 8;  // rows a task

using HeadBuffer = std::array<float, kMaxHeadDim>;

void rotate(float* y, const float* x, const float* cos, const float* sin, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    y[i] = x[i] * cos[i] - x[i + half] * sin[i];
    y[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
  }
}

// The transposed rotation.
void rotate_back(float* dx, const float* dy, const float* cos, const float* sin, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    dx[i] = dy[i] * cos[i] + dy[i + half] * sin[i];
    dx[i + half] = dy[i + half] * cos[i] - dy[i] * sin[i];
  }
}

void head_forward(float* y, const float* x, std::span<const float> norm, float eps, const float* cos,
                  const float* sin, std::int64_t dim) {
  HeadBuffer normed;
  if (!norm.empty()) {
    cpu::row_norm(normed.data(), x, norm.data(), dim, cpu::row_rstd(x, dim, eps));
    x = normed.data();
  }
  rotate(y, x, cos, sin, dim / 2);
}

void head_backward(float* dx, const float* dy, const float* x, std::span<const float> norm, float eps,
                   const float* cos, const float* sin, std::int64_t dim) {
  HeadBuffer g;
  rotate_back(g.data(), dy, cos, sin, dim / 2);
  if (norm.empty()) {
    std::copy_n(g.data(), dim, dx);
    return;
  }
  const float rstd = cpu::row_rstd(x, dim, eps);
  const float projection = cpu::row_projection(g.data(), x, norm.data(), dim, rstd);
#pragma omp simd
  for (std::int64_t i = 0; i < dim; ++i)
    dx[i] = rstd * (norm[static_cast<std::size_t>(i)] * g[static_cast<std::size_t>(i)]) - projection * x[i];
}

}  // namespace

void fill_rope_table(Matrix cos, Matrix sin, std::span<const double> frequency) {
  for (std::int64_t p = 0; p < cos.rows; ++p)
    for (std::int64_t i = 0; i < cos.cols; ++i) {
      const double angle = static_cast<double>(p) * frequency[static_cast<std::size_t>(i)];
      cos.row(p)[i] = static_cast<float>(std::cos(angle));
      sin.row(p)[i] = static_cast<float>(std::sin(angle));
    }
}

void rope_forward(const CpuContext& ctx, Matrix q, Matrix k, ConstMatrix qkv, const RopeInputs& in) {
  const std::int64_t dim = in.heads.head_dim;
  cpu::parallel_pieces(ctx, qkv.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t p = in.position[static_cast<std::size_t>(t)];
      const float *cos = in.cos.row(p), *sin = in.sin.row(p), *x = qkv.row(t);
      for (std::int64_t h = 0; h < in.heads.n_heads; ++h)
        head_forward(q.row(t) + h * dim, x + h * dim, in.q_norm, in.eps, cos, sin, dim);
      x += in.heads.q_cols();
      for (std::int64_t h = 0; h < in.heads.n_kv_heads; ++h)
        head_forward(k.row(t) + h * dim, x + h * dim, in.k_norm, in.eps, cos, sin, dim);
    }
  });
}

void rope_backward(const CpuContext& ctx, Matrix dqkv, ConstMatrix dq, ConstMatrix dk, ConstMatrix qkv,
                   const RopeInputs& in) {
  const std::int64_t dim = in.heads.head_dim;
  cpu::parallel_pieces(ctx, qkv.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t p = in.position[static_cast<std::size_t>(t)];
      const float *cos = in.cos.row(p), *sin = in.sin.row(p), *x = qkv.row(t);
      float* dx = dqkv.row(t);
      for (std::int64_t h = 0; h < in.heads.n_heads; ++h)
        head_backward(dx + h * dim, dq.row(t) + h * dim, x + h * dim, in.q_norm, in.eps, cos, sin, dim);
      x += in.heads.q_cols();
      dx += in.heads.q_cols();
      for (std::int64_t h = 0; h < in.heads.n_kv_heads; ++h)
        head_backward(dx + h * dim, dk.row(t) + h * dim, x + h * dim, in.k_norm, in.eps, cos, sin, dim);
    }
  });
}

}  // namespace tandem
