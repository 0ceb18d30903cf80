#include "kernels/cross_entropy.hpp"

#include <cmath>
#include <limits>

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/vector_math.hpp"

namespace tandem {

void cross_entropy(const CpuContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Matrix gradient) {
  cpu::parallel_for(ctx, logits.rows, [&](std::int64_t n) {
    float* x = logits.row(n);
    const auto right = target[static_cast<std::size_t>(n)];
    const double right_logit = static_cast<double>(x[right]);
    float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
    for (std::int64_t v = 0; v < logits.cols; ++v) most = x[v] > most ? x[v] : most;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < logits.cols; ++v) {
      const float p = cpu::exp_f32(x[v] - most);
      x[v] = p;
      sum += static_cast<double>(p);
    }
    nll[static_cast<std::size_t>(n)] =
        static_cast<float>(std::log(sum) + static_cast<double>(most) - right_logit);
    if (!gradient.data) return;
    const auto inverse = static_cast<float>(1.0 / sum);
    float* dx = gradient.row(n);
#pragma omp simd
    for (std::int64_t v = 0; v < logits.cols; ++v) dx[v] = x[v] * inverse;
    dx[right] -= 1.0f;
  });
}

}  // namespace tandem
