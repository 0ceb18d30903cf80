// What the audits of a run say, which were made in lock-step while it trained.
#include <algorithm>
#include <cmath>

#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

using Audits = Trajectory::Audits;

constexpr double kStepLimit = 8 * 0x1p-24;  // of AdamW's step in isolation (src/audit)

// The audit's note begins with the gravest finding; what follows "; " are others.
std::string first_finding(const std::string& note) { return note.substr(0, note.find("; ")); }

// What an EXACT note is about; src/audit writes it.
Stage stage_of(const std::string& note) {
  for (const char* words : {"base tensor ", "configuration was read"})
    if (note.find(words) != note.npos) return Stage::kLoading;
  for (const char* words : {"token ids or target marks", " target tokens, by the spec"})
    if (note.find(words) != note.npos) return Stage::kRendering;
  return Stage::kTrajectory;
}

// The first audit of each verdict, by what its note says first; those after it follow from it.
void verdicts(const Audits& audits, const std::string& who, Observations& out) {
  struct Kind {
    Verdict verdict;
    Outcome outcome;
    Step step;
  };
  std::size_t passed = 0, failed = 0;
  for (const Verdict verdict : audits.verdict)
    passed += verdict == Verdict::kPass, failed += verdict != Verdict::kPass && verdict != Verdict::kSkipped;
  for (const Kind& kind : {Kind{Verdict::kExact, Outcome::kExact, Step::kState},
                           Kind{Verdict::kBound, Outcome::kBound, Step::kOptimiser},
                           Kind{Verdict::kCalibrated, Outcome::kCalibrated, Step::kNorm}}) {
    const auto found = std::find(audits.verdict.begin(), audits.verdict.end(), kind.verdict);
    if (found == audits.verdict.end()) continue;
    const auto i = static_cast<std::size_t>(found - audits.verdict.begin());
    const std::string note = i < audits.note.size() ? first_finding(audits.note[i]) : "";
    Check check(kind.verdict == Verdict::kExact ? stage_of(note) : Stage::kTrajectory, kind.step,
                cat(who, ": audits' verdicts"), kind.outcome);
    check.equal(false, audits.step[i], [&] { return cat("update ", audits.step[i], ": ", note); });
    out.push_back(check.result());
  }
  if (failed > 0 || passed == 0) return;
  Check check(Stage::kTrajectory, Step::kState, cat(who, ": audits' verdicts"), Outcome::kExact);
  for (std::size_t i = 0; i < passed; ++i) check.equal(true, -1, [] { return ""; });
  check.say(cat(counted(passed, "audit"), ", all PASS"));
  out.push_back(check.result());
}

// Loss named by the note; its threshold is nowhere else.
void losses(const Audits& audits, const std::string& who, Observations& out) {
  Check check(Stage::kTrajectory, Step::kLoss, cat(who, ": audited losses"), Outcome::kCalibrated);
  for (std::size_t i = 0; i < audits.verdict.size() && i < audits.note.size() && i < audits.loss_error.size();
       ++i) {
    if (audits.verdict[i] == Verdict::kSkipped || std::isnan(audits.loss_error[i])) continue;
    const std::string& note = audits.note[i];
    const auto at = note.rfind("loss ", 0) == 0 ? 0 : note.find("; loss ");
    check.equal(at == note.npos, audits.step[i], [&] {
      return cat("update ", audits.step[i], ": ", first_finding(note.substr(at == 0 ? 0 : at + 2)));
    });
  }
  if (check.checked() == 0) return;
  double largest = 0.0;
  for (const double error : audits.loss_error)
    if (!std::isnan(error)) largest = std::max(largest, error);
  check.say(cat("largest relative error ", short_number(largest)));
  out.push_back(check.result());
}

void tensors(const Run& run, const Audits& audits, const std::string& who, Observations& out) {
  const auto p = static_cast<std::size_t>(audits.n_tensors);
  const auto& names = run.t.adapter ? run.t.adapter->names : std::vector<std::string>();
  if (p == 0) return;
  Check gradient(Stage::kTrajectory, Step::kGradient, cat(who, ": audited gradients (d)"),
                 Outcome::kCalibrated, "of the threshold");
  Check step(Stage::kTrajectory, Step::kOptimiser, cat(who, ": audited AdamW steps"), Outcome::kBound,
             "relative");
  double finest = INFINITY, coarsest = 0.0;
  for (std::size_t i = 0; i < audits.step.size(); ++i) {
    if (i < audits.verdict.size() && audits.verdict[i] == Verdict::kSkipped) continue;
    // The worst tensor of an update stands for it.
    double worst = -1.0, worst_step = -1.0;
    std::size_t where = 0, where_step = 0;
    for (std::size_t k = i * p; k < (i + 1) * p; ++k) {
      if (k < audits.relative_error.size() && k < audits.bound.size() &&
          !std::isnan(audits.relative_error[k])) {
        // A threshold that is none lets nothing pass.
        const bool sound = std::isfinite(audits.bound[k]) && audits.bound[k] > 0.0;
        const double ratio = audits.relative_error[k] == 0.0 ? 0.0
                             : sound                         ? audits.relative_error[k] / audits.bound[k]
                                                             : INFINITY;
        if (!(ratio <= worst)) worst = ratio, where = k;
        finest = std::min(finest, audits.bound[k]), coarsest = std::max(coarsest, audits.bound[k]);
      }
      if (k < audits.optimizer_error.size() && !std::isnan(audits.optimizer_error[k]) &&
          !(audits.optimizer_error[k] <= worst_step))
        worst_step = audits.optimizer_error[k], where_step = k;
    }
    const auto place = [&](std::size_t k) {
      return cat("update ", audits.step[i], ", ",
                 k - i * p < names.size() ? names[k - i * p] : cat("tensor ", k - i * p));
    };
    if (worst >= 0.0)
      gradient.within(worst, 1.0, audits.step[i], [&] {
        return cat(place(where), ": d = ", short_number(audits.relative_error[where]),
                   where < audits.projection.size() ? cat(", s = ", audits.projection[where]) : "");
      });
    if (worst_step >= 0.0)
      step.within(worst_step, kStepLimit, audits.step[i], [&] { return place(where_step); });
  }
  if (gradient.checked() > 0) {
    gradient.say(cat(counted(gradient.checked(), "audit"), " of ", counted(p, "tensor"), ", thresholds of d ",
                     short_number(finest), " to ", short_number(coarsest)));
    out.push_back(gradient.result());
  }
  if (step.checked() > 0) out.push_back(step.result());
}

}  // namespace

void check_audits(const Run& run, const char* who, Observations& out) {
  if (!run.t.audits) return;
  const Audits& audits = *run.t.audits;
  std::int64_t skipped = 0;
  for (const Verdict verdict : audits.verdict) skipped += verdict == Verdict::kSkipped;
  // What the columns show is named by its tensor; a verdict alone, by its note.
  losses(audits, who, out);
  tensors(run, audits, who, out);
  verdicts(audits, who, out);
  if (skipped > 0)
    out.push_back(not_checked(Stage::kTrajectory, Step::kGradient,
                              cat(who, ": ", counted(skipped, "audit"), " skipped"),
                              "the mirror was behind"));
}

}  // namespace tandem
