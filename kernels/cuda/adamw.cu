// The CPU's expressions, and so its bits: no kernel is built with contraction of products and sums.
#include <cmath>

#include "kernels/adamw.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = kUnit<float>;
constexpr int kThreads = 256;

struct Step {
  double decay, step, root_correction, b1, c1, b2, c2, eps, clip;
};

TANDEM_KERNEL adamw_kernel(float* p, float* m, float* v, const float* gradient, std::int64_t size, Step f) {
  const std::int64_t at = (static_cast<std::int64_t>(block_x()) * kThreads + thread_x()) * kN;
  if (at >= size) return;
  float pp[kN], mm[kN], vv[kN], gg[kN];
  load(pp, p + at, size - at);
  load(mm, m + at, size - at);
  load(vv, v + at, size - at);
  load(gg, gradient + at, size - at);
  TANDEM_UNROLL
  for (int i = 0; i < kN; ++i) {
    const double g = f.clip * static_cast<double>(gg[i]);
    mm[i] = static_cast<float>(f.b1 * static_cast<double>(mm[i]) + f.c1 * g);
    vv[i] = static_cast<float>(f.b2 * static_cast<double>(vv[i]) + f.c2 * (g * g));
    const double denominator = sqrt(static_cast<double>(vv[i])) / f.root_correction + f.eps;
    pp[i] = static_cast<float>(static_cast<double>(pp[i]) * f.decay -
                               f.step * static_cast<double>(mm[i]) / denominator);
  }
  store(p + at, pp, size - at);
  store(m + at, mm, size - at);
  store(v + at, vv, size - at);
}

}  // namespace

void adamw(const CudaContext& ctx, std::span<float> p, std::span<float> m, std::span<float> v,
           std::span<const float> gradient, const AdamwFactors& f) {
  const double k = static_cast<double>(f.steps_made);
  const Step step = {1.0 - f.lr * f.weight_decay,
                     f.lr / (1.0 - std::pow(f.beta1, k)),
                     std::sqrt(1.0 - std::pow(f.beta2, k)),
                     f.beta1,
                     1.0 - f.beta1,
                     f.beta2,
                     1.0 - f.beta2,
                     f.eps,
                     f.clip};
  const auto size = static_cast<std::int64_t>(p.size());
  launch(ctx, "adamw", adamw_kernel, {blocks_for(size, kThreads * kN)}, kThreads, 0, p.data(), m.data(),
         v.data(), gradient.data(), size, step);
}

}  // namespace tandem
