// One row of RMSNorm: shared by the norm over the hidden dimension and by the query and key norms.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::cpu {

inline float row_rstd(const float* x, std::int64_t n, float eps) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  return static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps)));
}

inline void row_norm(float* y, const float* x, const float* w, std::int64_t n, float rstd) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) y[c] = w[c] * (x[c] * rstd);
}

// The factor of x in the gradient: rstd^3 * mean(w dy x).
inline float row_projection(const float* dy, const float* x, const float* w, std::int64_t n, float rstd) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c)
    sum += static_cast<double>(w[c]) * static_cast<double>(dy[c]) * static_cast<double>(x[c]);
  const double r = static_cast<double>(rstd);
  return static_cast<float>(r * r * r * sum / static_cast<double>(n));
}

}  // namespace tandem::cpu
