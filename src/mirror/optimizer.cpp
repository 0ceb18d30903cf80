#include "src/mirror/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/mirror/check.hpp"

namespace tandem::mirror {

double learning_rate(const Spec& spec, std::int64_t update) {
  const double lr = spec.optim_lr, min = spec.optim_lr_min;
  const auto t = static_cast<double>(update), w = static_cast<double>(spec.optim_warmup),
             end = static_cast<double>(spec.train_updates);
  if (update <= spec.optim_warmup) return lr * t / w;
  if (spec.optim_schedule == "cosine")
    return min + (lr - min) * (1 + std::cos(std::numbers::pi * (t - w) / (end - w))) / 2;
  if (spec.optim_schedule == "linear") return min + (lr - min) * (end - t) / (end - w);
  return lr;
}

double total_norm(const Tensors& gradient) {
  double sum = 0;
  for (const auto& tensor : gradient)
    for (const double g : tensor) sum += g * g;
  return std::sqrt(sum);
}

double clip_factor(double norm, double most) { return most <= 0 ? 1 : std::min(1.0, most / (norm + 1e-6)); }

void AdamW::step(std::vector<double>& p, std::vector<double>& m, std::vector<double>& v,
                 const std::vector<double>& g, double lr, std::int64_t k) const {
  check(m.size() == p.size() && v.size() == p.size() && g.size() == p.size(),
        "adamw: p, m, v and g differ in size");
  const double step_size = lr / (1 - std::pow(beta1, static_cast<double>(k)));
  const double root_correction = std::sqrt(1 - std::pow(beta2, static_cast<double>(k)));
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] *= 1 - lr * weight_decay;
    m[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    p[i] -= step_size * m[i] / (std::sqrt(v[i]) / root_correction + eps);
  }
}

}  // namespace tandem::mirror
