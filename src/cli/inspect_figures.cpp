#include "src/cli/inspect_figures.hpp"

#include <cmath>

#include "src/spec/run_spec.hpp"

namespace tandem {

std::optional<HeldOut> held_out(const Trajectory& t) {
  if (!t.evals || t.evals->loss.size() != t.evals->step.size()) return std::nullopt;
  std::optional<HeldOut> found;
  for (std::size_t i = 0; i < t.evals->loss.size(); ++i) {
    const LossAt at{t.evals->step[i], t.evals->loss[i]};
    if (std::isnan(at.loss)) continue;
    if (!found) {
      found = HeldOut{at, at, at};
      continue;
    }
    ++found->after_first;
    if (at.loss < found->last.loss) ++found->below_previous;
    if (at.loss < found->best.loss) {
      ++found->below_best;
      found->best = at;
    }
    found->last = at;
  }
  return found;
}

std::optional<AuditFigures> audit_figures(const Trajectory& t) {
  if (!t.audits) return std::nullopt;
  const Trajectory::Audits& audits = *t.audits;
  AuditFigures figures;
  figures.count = audits.rows;
  for (const Verdict verdict : audits.verdict) ++figures.verdicts.at(static_cast<std::size_t>(verdict));
  if (audits.relative_error.size() != audits.bound.size()) return figures;
  for (std::size_t i = 0; i < audits.bound.size(); ++i) {
    const double ratio = audits.relative_error[i] / audits.bound[i];
    if (!(audits.bound[i] > 0.0) || std::isnan(ratio)) continue;
    if (figures.count_of_ratios++ > 0 && !(ratio > figures.largest_ratio)) continue;
    const auto n_tensors = static_cast<std::size_t>(audits.n_tensors);
    figures.largest_ratio = ratio;
    if (i / n_tensors < audits.step.size()) figures.largest_step = audits.step[i / n_tensors];
    const bool named = t.adapter && t.adapter->names.size() == n_tensors;
    figures.largest_tensor = named ? t.adapter->names[i % n_tensors] : "";
  }
  return figures;
}

std::optional<std::int64_t> planned_updates(const Trajectory& t) {
  return integer_of(canonical_values(t.spec_text), "train.updates");
}

}  // namespace tandem
