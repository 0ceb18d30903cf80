// Figures of one trajectory that `tandem inspect` shows: losses, what evaluations gained, what audits found.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "io/trajectory_reader.hpp"

namespace tandem {

struct LossAt {
  std::int64_t step = 0;
  double loss = 0.0;  // nat per scored token
};

// Over evaluations whose loss is a number.
struct HeldOut {
  LossAt first, best, last;
  // Of the `after_first` evaluations after the first: those whose loss is below every one before, and those
  // whose loss is below that of the evaluation just before.
  std::int64_t after_first = 0, below_best = 0, below_previous = 0;
};
std::optional<HeldOut> held_out(const Trajectory& trajectory);

struct AuditFigures {
  std::int64_t count = 0;
  std::array<std::int64_t, std::size(kVerdictNames)> verdicts{};  // by their value
  // The largest relative_error / bound over audits and tensors where both are numbers; count_of_ratios 0:
  // none.
  std::int64_t count_of_ratios = 0, largest_step = 0;
  double largest_ratio = 0.0;
  std::string largest_tensor;  // "" where the file does not name its tensors
};
// nullopt: the run was not audited.
std::optional<AuditFigures> audit_figures(const Trajectory& trajectory);

// The planned number of updates, from the canonical text.
std::optional<std::int64_t> planned_updates(const Trajectory& trajectory);

}  // namespace tandem
