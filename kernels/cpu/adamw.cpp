// Built with -ffp-contract=off: the step is compared with other stacks to a few units in the last place.
#include "kernels/adamw.hpp"

#include <array>
#include <cmath>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

void adamw(const CpuContext& ctx, std::span<float> p, std::span<float> m, std::span<float> v,
           std::span<const float> gradient, const AdamwFactors& f) {
  constexpr std::int64_t kPiece = 16384;
  const double k = static_cast<double>(f.steps_made);
  const double decay = 1.0 - f.lr * f.weight_decay;
  const double step = f.lr / (1.0 - std::pow(f.beta1, k));
  const double root_correction = std::sqrt(1.0 - std::pow(f.beta2, k));
  const double b1 = f.beta1, c1 = 1.0 - f.beta1, b2 = f.beta2, c2 = 1.0 - f.beta2, eps = f.eps, clip = f.clip;
  float *pp = p.data(), *mm = m.data(), *vv = v.data();
  const float* gg = gradient.data();
  cpu::parallel_pieces(
      ctx, static_cast<std::int64_t>(p.size()), kPiece, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const double g = clip * static_cast<double>(gg[i]);
          const float m_new = static_cast<float>(b1 * static_cast<double>(mm[i]) + c1 * g);
          const float v_new = static_cast<float>(b2 * static_cast<double>(vv[i]) + c2 * (g * g));
          mm[i] = m_new;
          vv[i] = v_new;
          const double denominator = std::sqrt(static_cast<double>(v_new)) / root_correction + eps;
          pp[i] = static_cast<float>(static_cast<double>(pp[i]) * decay -
                                     step * static_cast<double>(m_new) / denominator);
        }
      });
}

double sum_of_squares(const CpuContext& ctx, std::span<const float> x) {
  // Pieces of a fixed length, summed in a fixed tree: 64 slots at most are open at a time.
  constexpr std::int64_t kPiece = 8192, kSlots = 64;
  const auto n = static_cast<std::int64_t>(x.size());
  double total = 0.0;
  for (std::int64_t base = 0; base < n; base += kPiece * kSlots) {
    std::array<double, kSlots> part{};
    const std::int64_t here = std::min(n - base, kPiece * kSlots);
    cpu::parallel_pieces(ctx, here, kPiece, [&](std::int64_t begin, std::int64_t end) {
      double sum = 0.0;
      const float* at = x.data() + base;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = begin; i < end; ++i)
        sum += static_cast<double>(at[i]) * static_cast<double>(at[i]);
      part[static_cast<std::size_t>(begin / kPiece)] = sum;
    });
    for (const double sum : part) total += sum;
  }
  return total;
}

}  // namespace tandem
