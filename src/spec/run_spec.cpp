#include "src/spec/run_spec.hpp"

#include <cmath>
#include <limits>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {
// Counters of samples and updates share one 64-bit word with an epoch or an update (SPEC.md, "Random
// numbers").
constexpr std::int64_t kMaxUpdates = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxSamples = std::numeric_limits<std::uint32_t>::max();
}  // namespace

double RunSpec::lora_scale() const {
  const auto rank = static_cast<double>(lora_rank);
  return lora_alpha / (lora_rslora ? std::sqrt(rank) : rank);
}

std::vector<std::pair<const char*, const RunSpec::Input*>> RunSpec::inputs() const {
  std::vector<std::pair<const char*, const Input*>> all = {{"model.path", &model},
                                                           {"data.train", &train},
                                                           {"data.held_out", &held_out},
                                                           {"lora.init", &lora_init}};
  std::erase_if(all, [](const auto& input) { return !input.second->given(); });
  return all;
}

void resolve(RunSpec& spec, std::int64_t n_train) {
  if (n_train < 1) throw Error(ErrorKind::kInput, "data.train: no training sample is left after rendering");
  if (n_train > kMaxSamples)
    throw Error(ErrorKind::kInput,
                cat("data.train: ", n_train, " samples, at most ", kMaxSamples, " are possible"));
  if (spec.train_updates < 0) {
    const std::int64_t per_epoch = (n_train + spec.batch_global - 1) / spec.batch_global;
    if (spec.train_epochs > kMaxUpdates / per_epoch)
      throw Error(ErrorKind::kUsage, cat("train.epochs = ", spec.train_epochs, ": with ", per_epoch,
                                         " updates an epoch this is more than ", kMaxUpdates, " updates"));
    spec.train_updates = spec.train_epochs * per_epoch;
  }
  const std::int64_t updates = spec.train_updates;
  if (spec.optim_warmup < 0) spec.optim_warmup = (3 * updates + 50) / 100;
  if (spec.optim_warmup >= updates)
    throw Error(ErrorKind::kUsage, cat("optim.warmup = ", spec.optim_warmup, ": must be below the run's ",
                                       updates, updates == 1 ? " update" : " updates", " (train.updates)"));
  if (spec.eval_every < 0) spec.eval_every = (updates + 41) / 42;
}

}  // namespace tandem
