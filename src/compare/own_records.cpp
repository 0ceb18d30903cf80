// Whether a file holds what its own texts say that its run records, and holds it as numbers.
#include <cmath>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/compare/checks.hpp"

namespace tandem {

namespace {

using Steps = std::span<const std::int64_t>;

struct Records {
  const Run& run;
  const std::string who;
  Observations& out;

  std::string name(const char* what) const { return cat(who, ": ", what); }
  void lacks(Stage stage, Step step, const char* what, const std::string& why) const {
    out.push_back(not_checked(stage, step, name(what), why, true));
  }

  // A text that was changed is no longer the one that was run.
  void texts() const {
    constexpr const char* kWhat = "its texts are those of their digests";
    Check check(Stage::kLoading, Step::kState, name(kWhat), Outcome::kExact);
    const Trajectory& t = run.t;
    for (const auto& [text, digest, path] :
         {std::tuple(&t.spec_text, &t.spec_digest, "/spec"),
          std::tuple(&t.execution_text, &t.execution_digest, "/execution")}) {
      if (text->empty()) continue;  // that is told where it is needed
      if (digest->empty())
        lacks(Stage::kLoading, Step::kState, kWhat, cat("it has no ", path, "/digest"));
      else
        check.equal(*digest == sha256_hex(*text), -1, [&, path = path] { return std::string(path); });
    }
    if (check.checked() > 0) out.push_back(check.result());
  }

  void independence() const {
    if (!run.t.updates) return;
    for (const char* axis : {"arithmetic", "orchestration", "runtime"})
      if (run.of(axis).empty())
        return lacks(Stage::kTrajectory, Step::kState, "independence of its stack",
                     cat("/provenance has no ", axis));
  }

  // The multiples of an execution key, up to the last update: all of them, and where `only`, no others.
  void multiples(const char* what, const char* path, const char* key, Steps steps, bool only) const {
    const auto every = integer_of(run.execution, key);
    if (!every || *every < 1) return;
    const std::set<std::int64_t> there(steps.begin(), steps.end());
    for (std::int64_t t = *every; t <= run.updates(); t += *every)
      if (!there.contains(t)) {
        lacks(Stage::kTrajectory, Step::kState, what,
              cat(path, " has none of update ", t, ", although ", key, " = ", *every));
        break;
      }
    if (!only) return;
    Check check(Stage::kTrajectory, Step::kState, name(what), Outcome::kExact);
    for (const std::int64_t t : steps)
      check.equal(t % *every == 0 && t <= run.updates(), t,
                  [&] { return cat("update ", t, ", which is none of its multiples of ", key); });
    if (check.checked() > 0) out.push_back(check.result());
  }

  // A row for each evaluation.
  void evaluations() const {
    if (!run.t.evals) return;
    const auto n = static_cast<std::int64_t>(run.t.evals->step.size());
    const auto each = [&](const char* path, std::int64_t rows) {
      if (rows != n)
        lacks(Stage::kTrajectory, Step::kEvaluation, "a row for each evaluation",
              cat(path, " has ", rows, ", /eval ", n));
    };
    if (run.t.probe) each("/probe", run.t.probe->rows);
    if (run.t.activations) each("/activation", run.t.activations->rows);
  }

  void audits() const {
    const auto every = integer_of(run.execution, "mirror.every");
    const auto mode = run.execution.find("mirror.mode");
    const bool audited = every && *every > 0 && (mode == run.execution.end() || mode->second != "free");
    // Peers may repeat keys of a mirror that they have not got.
    if (!audited || (run.t.stack != "native" && !run.t.audits)) return;
    constexpr const char* kWhat = "its audits";
    if (!run.t.audits) return lacks(Stage::kTrajectory, Step::kState, kWhat, "it has no /audit");
    const Trajectory::Audits& a = *run.t.audits;
    const std::pair<const char*, bool> columns[] = {{"verdict", a.verdict.empty()},
                                                    {"relative_error", a.relative_error.empty()},
                                                    {"bound", a.bound.empty()},
                                                    {"optimizer_error", a.optimizer_error.empty()}};
    for (const auto& [column, lacking] : columns)
      if (a.rows > 0 && lacking)
        return lacks(Stage::kTrajectory, Step::kState, kWhat, cat("it has no /audit/", column));
    multiples(kWhat, "/audit", "mirror.every", a.step, false);
    weights_in_memory();
  }

  // All at the start and, of a run that ended, at the end.
  void weights_in_memory() const {
    if (!run.t.load) return;
    constexpr const char* kWhat = "its weights in memory";
    const Trajectory::Load& load = *run.t.load;
    if (!load.memory || load.memory->digest.empty() || load.memory->step.empty())
      return lacks(Stage::kLoading, Step::kState, kWhat, "it audits and has no /load/memory");
    const auto read_at = [&](std::int64_t step) {
      std::set<std::int64_t> tensors;
      for (std::size_t r = 0; r < load.memory->step.size() && r < load.memory->tensor.size(); ++r)
        if (load.memory->step[r] == step) tensors.insert(load.memory->tensor[r]);
      return tensors.size();
    };
    for (const std::int64_t step : {std::int64_t{0}, run.updates()})
      if (const std::size_t n = read_at(step);
          n < load.name.size() && (step == 0 || run.updates() == run.planned()))
        lacks(Stage::kLoading, Step::kState, kWhat,
              cat("/load/memory has ", n, " of ", load.name.size(), " tensors after update ", step));
  }

  // Any stack, however far it has trained. What may be NaN is judged elsewhere.
  void finite() const {
    Check check(Stage::kTrajectory, Step::kEvaluation, name("its numbers are finite"), Outcome::kExact);
    const auto column = [&](const char* path, Steps steps, const std::vector<double>& values,
                            auto&& may_be_none) {
      if (steps.empty() || values.size() % steps.size() != 0) return;
      const std::size_t width = values.size() / steps.size();
      for (std::size_t i = 0; i < values.size(); ++i)
        check.equal(std::isfinite(values[i]) || (std::isnan(values[i]) && may_be_none(i)), steps[i / width],
                    [&] { return cat("update ", steps[i / width], ", ", path, ": ", values[i]); });
    };
    const auto never = [](std::size_t) { return false; };
    if (run.t.updates) {
      const auto& u = *run.t.updates;
      column("/update/loss", u.step, u.loss,
             [&](std::size_t i) { return i < u.n_targets.size() && u.n_targets[i] == 0; });
      column("/update/grad_norm", u.step, u.grad_norm, never);
      column("/update/clip", u.step, u.clip, never);
      column("/update/lr", u.step, u.lr, never);
    }
    if (run.t.observed)
      column("/observed/tensor_grad_norm", run.t.observed->step, run.t.observed->tensor_grad_norm, never);
    if (run.t.evals) {
      const Steps steps = run.t.evals->step;
      column("/eval/nll_sum", steps, run.t.evals->nll_sum, never);
      column("/eval/loss", steps, run.t.evals->loss, never);
      if (const auto& p = run.t.probe) {
        column("/probe/nll", steps, p->nll, never);
        column("/probe/target_logit", steps, p->target_logit, never);
        column("/probe/topk_logit", steps, p->topk_logit,
               [&](std::size_t i) { return i < p->topk_id.size() && p->topk_id[i] == -1; });
      }
      if (const auto& a = run.t.activations) {
        column("/activation/rms", steps, a->rms, never);
        column("/activation/absmax", steps, a->absmax, never);
        column("/activation/ba_norm", steps, a->ba_norm, never);
        column("/activation/update_norm", steps, a->update_norm, never);
      }
    }
    if (check.checked() > 0) out.push_back(check.result());
  }
};

}  // namespace

void check_own_records(const Run& run, const char* who, Observations& out) {
  const Records records{.run = run, .who = who, .out = out};
  records.texts();
  records.independence();
  // A part that is not there at all is told where the two files are put side by side.
  if (run.t.observed && run.t.observed->rows > 0)
    records.multiples("observed updates", "/observed", "observe.every", run.t.observed->step, true);
  if (!run.t.snapshots.empty()) {
    std::vector<std::int64_t> steps;
    for (const auto& [step, file] : run.t.snapshots) steps.push_back(step);
    records.multiples("its snapshots", "/snapshot", "snapshot.every", steps, false);
  }
  records.evaluations();
  records.audits();
  records.finite();
}

}  // namespace tandem
