#include "src/train/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/text.hpp"

namespace tandem {

double learning_rate(const RunSpec& spec, std::int64_t t) {
  const double lr = spec.optim_lr, min = spec.optim_lr_min;
  const auto at = static_cast<double>(t), warmup = static_cast<double>(spec.optim_warmup),
             last = static_cast<double>(spec.train_updates);
  if (t <= spec.optim_warmup) return lr * at / warmup;
  if (spec.optim_schedule == "cosine")
    return min + (lr - min) * (1.0 + std::cos(std::numbers::pi * (at - warmup) / (last - warmup))) / 2.0;
  if (spec.optim_schedule == "linear") return min + (lr - min) * (last - at) / (last - warmup);
  return lr;
}

std::string why_nothing_is_learned(const RunSpec& spec) {
  if (spec.optim_lr == 0.0) return "optim.lr = 0: nothing is learned";
  if (spec.train_updates > 1 || learning_rate(spec, 1) > 0.0) return "";
  return cat(
      "the only update has the learning rate optim.lr_min = 0 (optim.schedule = ", spec.optim_schedule,
      "): nothing is learned; make more updates (train.epochs, train.updates, a smaller batch.global)");
}

double clip_factor(double norm, double max_norm) {
  return max_norm <= 0.0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tandem
