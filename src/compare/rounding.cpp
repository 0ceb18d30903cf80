#include "src/compare/rounding.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {

namespace {

// Variances of relative errors, whole tensors (VALIDATION's measurements are in README.md).
double product(const Roundoff& u, std::int64_t terms) {
  return u.sums * u.sums * static_cast<double>(terms) / 10 + 0.56 * u.inputs * u.inputs +
         u.results * u.results / 3;
}

double elementwise(const Roundoff& u, int roundings) { return roundings * u.results * u.results / 3; }

double rms_norm(const Roundoff& u, std::int64_t channels) {
  return u.sums * u.sums * static_cast<double>(channels) / 10 + elementwise(u, 3);
}

double layer_variance(const ModelSizes& m, const Roundoff& u) {
  const double projected =
      rms_norm(u, m.hidden) + product(u, m.hidden) + rms_norm(u, m.head_dim) + elementwise(u, 2);
  // Softmax turns absolute errors of scores into relative ones; scores of unit-rms queries and keys are up to
  // sqrt(head_dim) large.
  const double scores =
      static_cast<double>(m.head_dim) * (2 * projected + product(u, m.head_dim)) + elementwise(u, 4);
  const double attention = scores + projected + product(u, m.longest) + product(u, m.heads * m.head_dim);
  const double feed_forward =
      rms_norm(u, m.hidden) + 2 * product(u, m.hidden) + elementwise(u, 4) + product(u, m.intermediate);
  return attention + feed_forward + elementwise(u, 2);
}

}  // namespace

std::optional<Roundoff> roundoff_of(const std::string& precision) {
  if (precision == "f64") return Roundoff{0x1p-53, 0.0, 0x1p-53};
  if (precision == "f32") return Roundoff{0x1p-24, 0.0, 0x1p-24};
  if (precision == "tf32") return Roundoff{0x1p-24, 0x1p-10, 0x1p-24};
  if (precision == "bf16") return Roundoff{0x1p-24, 0x1p-8, 0x1p-8};
  return std::nullopt;
}

RoundingModel::RoundingModel(const ModelSizes& sizes, const Roundoff& a, const Roundoff& b) : sizes_(sizes) {
  double sum = 0.0;
  for (std::int64_t l = 0; l < sizes.layers; ++l)
    layer_variance_.push_back(sum += layer_variance(sizes, a) + layer_variance(sizes, b));
  for (const Roundoff* u : {&a, &b}) sum += rms_norm(*u, sizes.hidden) + product(*u, sizes.hidden);
  forward_ = std::sqrt(sum);
}

double RoundingModel::activation(std::int64_t layer) const {
  return kLambda * std::sqrt(layer_variance_[static_cast<std::size_t>(layer)]);
}

double RoundingModel::logit() const { return kLambda * forward_ * sizes_.logit_scale; }

double RoundingModel::mean_loss(std::int64_t n_samples) const {
  return token_nll() / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, n_samples)));
}

// The backward pass takes the forward's errors and makes two products for each of its.
double RoundingModel::gradient() const { return kLambda * std::sqrt(3.0) * forward_; }

void RoundingModel::follow(std::span<const double> lr, std::span<const double> grad_norm) {
  lr_.assign(lr.begin(), lr.end());
  norm_.assign(grad_norm.begin(), grad_norm.end());
  state_.clear();
  step_.clear();
  horizon_ = 0;
  double apart = 0.0;
  for (std::size_t i = 0; i < lr_.size(); ++i) {
    const double scale = lr_[i] > 0.0 ? lr_[i] : 0.0;
    if (apart > kSmall * scale) break;
    state_.push_back(apart);
    const double error = gradient() + (scale > 0.0 ? kRho * apart / scale : 0.0);
    // The first gradients of B and of A (updates 1 and 2) are stepped along by their signs, later ones
    // smoothly.
    const double turned = i < 2 ? 2 * std::sqrt(error / std::numbers::pi) : 2 * error;
    step_.push_back(std::min(2.0, turned));
    apart += step_.back() * scale;
    horizon_ = static_cast<std::int64_t>(i) + 1;
  }
  // After the last update that can be judged.
  state_.push_back(apart);
}

double RoundingModel::gradient(std::int64_t t) const {
  const double scale = lr_[static_cast<std::size_t>(t - 1)];
  return gradient() + (state(t) > 0.0 && scale > 0.0 ? kRho * state(t) / scale : 0.0);
}

// What a state that differs by e does to a loss: g.e, where e has no direction of its own, and e.H.e / 2.
double RoundingModel::drift(std::int64_t t) const {
  const double e = state(t);
  if (e == 0.0) return 0.0;
  const auto i =
      static_cast<std::size_t>(std::min<std::int64_t>(t, static_cast<std::int64_t>(lr_.size())) - 1);
  const double scale = lr_[i] > 0.0 ? lr_[i] : lr_[0];
  const double norm = std::isfinite(norm_[i]) ? norm_[i] : 0.0;
  const double root = std::sqrt(static_cast<double>(sizes_.n_adapter));
  return norm * e * (kLambda + 0.5 * root * kRho * e / scale);
}

double RoundingModel::loss(std::int64_t t, std::int64_t n_samples) const {
  return mean_loss(n_samples) + drift(t);
}

double RoundingModel::evaluation(std::int64_t after, std::int64_t n_samples) const {
  return mean_loss(n_samples) + (after > 0 ? drift(after + 1) : 0.0);
}

double RoundingModel::update(std::int64_t t) const { return step_[static_cast<std::size_t>(t - 1)]; }

}  // namespace tandem
