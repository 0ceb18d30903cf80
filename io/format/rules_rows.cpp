// Rules on /update and /observed.
#include <algorithm>
#include <cmath>

#include "io/format/rules.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

void check_counts(Columns& columns) {
  const auto *n_targets = columns.ints("update/n_targets"), *steps = columns.ints("update/optimizer_step");
  if (!n_targets) return;
  const auto& counts = *n_targets;
  columns.findings().each("update/n_targets", counts.size(), [&](std::size_t i) {
    return unless(counts[i] >= 0, counts[i], "a number of at least 0");
  });
  if (steps)
    columns.findings().each("update/optimizer_step", steps->size(), [&](std::size_t i) {
      const std::int64_t before = i > 0 ? (*steps)[i - 1] : 0;
      const bool made = counts[i] != 0;
      return unless(
          (*steps)[i] - (made ? 1 : 0) == before, (*steps)[i],
          made ? cat("one more than ", before, ", the step before") : cat(before, ", as nothing was scored"));
    });
  if (const auto* loss = columns.doubles("update/loss"))
    columns.findings().each("update/loss", loss->size(), [&](std::size_t i) {
      const double value = (*loss)[i];
      return counts[i] == 0 ? unless(std::isnan(value), value, "NaN, as nothing was scored")
                            : unless(not_negative(value), value, kNotNegative);
    });
  if (const auto* clip = columns.doubles("update/clip"))
    columns.findings().each("update/clip", clip->size(), [&](std::size_t i) {
      const double factor = (*clip)[i];
      return counts[i] == 0 ? unless(factor == 1.0, factor, "1, as nothing was scored")
                            : unless(factor > 0.0 && factor <= 1.0, factor, "a factor above 0 and at most 1");
    });
  if (const auto* norm = columns.doubles("update/grad_norm"))
    columns.findings().each("update/grad_norm", norm->size(), [&](std::size_t i) {
      return counts[i] == 0 ? unless((*norm)[i] == 0.0, (*norm)[i], "0, as nothing was scored")
                            : unless(not_negative((*norm)[i]), (*norm)[i], kNotNegative);
    });
}

// Each epoch's batches hold every training sample once; a batch does not reach into the next epoch.
class Epochs {
 public:
  explicit Epochs(std::int64_t n_train) : seen_(static_cast<std::size_t>(n_train), false) {}

  // How many samples the next batch of at most `most` has.
  std::int64_t next(std::int64_t most) const {
    return std::min(most, static_cast<std::int64_t>(seen_.size()) - count_);
  }
  // False: a second time in its epoch.
  bool take(std::int64_t id) {
    const auto at = static_cast<std::size_t>(id);
    if (seen_[at]) return false;
    seen_[at] = true;
    ++count_;
    return true;
  }
  void end_batch() {
    if (count_ < static_cast<std::int64_t>(seen_.size())) return;
    std::fill(seen_.begin(), seen_.end(), false);
    count_ = 0;
  }

 private:
  std::vector<bool> seen_;
  std::int64_t count_ = 0;
};

void check_sample_ids(Columns& columns, const RunPlan& plan) {
  const auto *n_samples = columns.ints("update/n_samples"), *ids = columns.ints("update/sample_ids");
  if (n_samples)
    columns.findings().each("update/n_samples", n_samples->size(), [&](std::size_t i) {
      return unless((*n_samples)[i] >= 1, (*n_samples)[i], "a number of at least 1");
    });
  if (!n_samples || !ids) return;
  const std::int64_t width = columns.size("update/sample_ids", 1);
  if (plan.batch_global && *plan.batch_global != width)
    columns.findings().add("/update/sample_ids", cat("has ", width, " columns"),
                           cat(*plan.batch_global, ", batch.global of /spec/text"));
  const auto wide = static_cast<std::size_t>(width);
  const auto train = n_train(columns);
  bool in_range = true;
  columns.findings().each(
      "update/sample_ids", ids->size(),
      [&](std::size_t i) {
        const bool is_sample = static_cast<std::int64_t>(i % wide) < (*n_samples)[i / wide];
        const std::int64_t id = (*ids)[i];
        const bool right = is_sample ? id >= 0 && (!train || id < *train) : id == -1;
        in_range = in_range && right;
        return unless(right, id,
                      !is_sample ? cat("-1 beyond the ", (*n_samples)[i / wide], " samples of n_samples")
                      : train    ? cat("a training sample, from 0 to ", *train - 1)
                                 : "a training sample");
      },
      wide);
  if (!in_range || !train || *train < 1 || wide == 0) return;
  Epochs epochs(*train);
  bool order_kept = true;
  columns.findings().each("update/sample_ids", n_samples->size(),
                          [&](std::size_t row) -> std::optional<Wrong> {
                            if (!order_kept) return std::nullopt;  // what follows cannot be judged
                            const std::int64_t wanted = epochs.next(width);
                            if ((*n_samples)[row] != wanted) {
                              order_kept = false;
                              return Wrong{cat("has ", (*n_samples)[row], " samples"),
                                           cat(wanted, ", what the epoch has left, at most G")};
                            }
                            for (std::int64_t j = 0; j < wanted; ++j) {
                              const std::int64_t id = (*ids)[row * wide + static_cast<std::size_t>(j)];
                              if (epochs.take(id)) continue;
                              order_kept = false;
                              return Wrong{cat("has sample ", id, " again"), "each sample once in an epoch"};
                            }
                            epochs.end_batch();
                            return std::nullopt;
                          });
  const auto *scored = columns.ints("render/n_targets"), *n_targets = columns.ints("update/n_targets");
  if (!scored || !n_targets) return;
  columns.findings().each("update/n_targets", n_targets->size(), [&](std::size_t row) {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < wide; ++j)
      if (const std::int64_t id = (*ids)[row * wide + j]; id >= 0)
        sum += (*scored)[static_cast<std::size_t>(id)];
    return unless((*n_targets)[row] == sum, (*n_targets)[row],
                  cat(sum, ", the sum of /render/n_targets over its samples"));
  });
}

void check_observed(Columns& columns, const RunPlan& plan) {
  if (const auto* step = columns.ints("observed/step")) {
    const std::int64_t every = plan.observe_every.value_or(0);
    columns.findings().each("observed/step", step->size(), [&](std::size_t i) {
      const std::int64_t before = i > 0 ? (*step)[i - 1] : 0, at = (*step)[i];
      if (every > 0)
        return unless(at == before + every, at, cat(before + every, ", every observe.every updates"));
      return unless(at > before, at, cat("more than ", before));
    });
    if (columns.has("update/step") && !step->empty() && step->back() > columns.size("update/step"))
      columns.findings().add("/observed/step", cat("ends at ", step->back()),
                             cat("at most ", columns.size("update/step"), ", the updates of /update"));
    if (every > 0 && plan.updates && is_complete(columns)) {
      const std::int64_t last = *plan.updates / every * every;
      if (last > 0 && (step->empty() || step->back() < last))
        columns.findings().add("/observed/step", step->empty() ? "is empty" : cat("ends at ", step->back()),
                               cat(last, ", the last multiple of observe.every, as the file is complete"));
    }
  }
  check_not_negative(columns, "observed/tensor_grad_norm");
}

void check_slow(Columns& columns) {
  if (const auto* step = columns.ints("slow/step"))
    columns.findings().each("slow/step", step->size(), [&](std::size_t i) {
      const std::int64_t before = i > 0 ? (*step)[i - 1] : 0;
      return unless((*step)[i] >= before, (*step)[i], cat("at least ", before));
    });
  if (const auto* rank = columns.ints("slow/rank"))
    columns.findings().each("slow/rank", rank->size(), [&](std::size_t i) {
      return unless((*rank)[i] >= -1, (*rank)[i], "a rank, or -1");
    });
  if (const auto* factor = columns.doubles("slow/factor"))
    columns.findings().each("slow/factor", factor->size(), [&](std::size_t i) {
      const double value = (*factor)[i];
      return unless(value > 2.0 && std::isfinite(value), value, "a finite number above 2");
    });
}

}  // namespace

void check_updates(Columns& columns, const RunPlan& plan) {
  if (const auto* step = columns.ints("update/step")) {
    columns.findings().each("update/step", step->size(), [&](std::size_t i) {
      const auto wanted = static_cast<std::int64_t>(i) + 1;
      return unless((*step)[i] == wanted, (*step)[i], cat(wanted, " (steps count from 1 and rise by 1)"));
    });
    const auto rows = static_cast<std::int64_t>(step->size());
    if (plan.updates && (rows > *plan.updates || (is_complete(columns) && rows < *plan.updates)))
      columns.findings().add("/update/step", cat("has ", rows, " rows"),
                             cat(*plan.updates, ", train.updates of /spec/text",
                                 rows < *plan.updates ? ", as the file is complete" : ""));
  }
  check_counts(columns);
  for (const char* name : {"update/lr", "update/seconds"}) check_not_negative(columns, name);
  check_sample_ids(columns, plan);
  columns.forget("update/sample_ids");
  check_observed(columns, plan);
  check_slow(columns);
}

}  // namespace tandem::format
