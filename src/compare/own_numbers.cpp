// What follows from one file's own numbers, in any stack and however far it has trained: no reference and no
// history of rounding is needed.
#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

constexpr Stage kStage = Stage::kTrajectory;
constexpr double kDoubleUlps = 4.0;  // of a handful of operations in double
// |B A| that float32 cannot lose beside a weight matrix of norm up to 100.
constexpr double kSmallest = 100 * 0x1p-23;

struct Own {
  const Run& run;
  const std::string who;
  Observations& out;
  const Trajectory::Updates& u = *run.t.updates;

  std::string name(const char* what) const { return cat(who, ": ", what); }
  std::size_t rows() const { return static_cast<std::size_t>(u.rows); }
  std::int64_t step(std::size_t i) const {
    return u.step.empty() ? static_cast<std::int64_t>(i) + 1 : u.step[i];
  }
  void add(const Check& check) {
    if (check.checked() > 0) out.push_back(check.result());
  }

  // min(1, max_norm / (norm + 1e-6)), 1 where the key says so or nothing was scored.
  void clip() {
    const auto most = real_of(run.spec, "optim.clip");
    if (!most || u.clip.empty() || u.grad_norm.empty() || u.n_targets.empty()) return;
    Check check(kStage, Step::kClip, name("clip factor of its own norm"), Outcome::kBound, "ulp");
    for (std::size_t i = 0; i < rows(); ++i) {
      const double own =
          *most <= 0.0 || u.n_targets[i] == 0 ? 1.0 : std::fmin(1.0, *most / (u.grad_norm[i] + 1e-6));
      check.within(ulps_apart(u.clip[i], own), kDoubleUlps, step(i), [&] { return cat("update ", step(i)); });
    }
    add(check);
  }

  void counts() {
    if (u.n_targets.empty()) return;
    Check steps(kStage, Step::kOptimiser, name("a step for every update that scores"), Outcome::kExact);
    Check loss(kStage, Step::kLoss, name("a loss for every update that scores"), Outcome::kExact);
    std::int64_t made = 0;
    for (std::size_t i = 0; i < rows(); ++i) {
      made += u.n_targets[i] > 0;
      const auto place = [&] { return cat("update ", step(i)); };
      if (!u.optimizer_step.empty()) steps.equal(u.optimizer_step[i] == made, step(i), place);
      if (!u.loss.empty()) loss.equal(std::isnan(u.loss[i]) == (u.n_targets[i] == 0), step(i), place);
    }
    add(steps);
    add(loss);
  }

  // The samples of an update, their number and their scored tokens.
  void samples() {
    if (u.batch_global == 0) return;
    const auto width = static_cast<std::size_t>(u.batch_global);
    const bool rendered = run.t.render && !run.t.render->n_targets.empty();
    const std::int64_t n_train = rendered ? run.t.render->n_train : -1;
    Check number(kStage, Step::kSamples, name("number of its samples"), Outcome::kExact);
    Check tokens(kStage, Step::kCounts, name("scored tokens of its samples"), Outcome::kExact);
    Check once(kStage, Step::kSamples, name("no sample twice in an epoch"), Outcome::kExact);
    std::vector<std::int64_t> epoch(n_train > 0 ? static_cast<std::size_t>(n_train) : 0, -1);
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < rows(); ++i) {
      std::int64_t n = 0, sum = 0;
      for (std::size_t k = i * width; k < (i + 1) * width; ++k) {
        const std::int64_t id = u.sample_ids[k];
        if (id < 0) continue;
        ++n;
        if (!rendered) continue;
        once.equal(id < n_train, step(i),
                   [&] { return cat("update ", step(i), ": sample ", id, " of ", n_train); });
        if (id >= n_train) continue;
        const auto row = static_cast<std::size_t>(id);
        sum += run.t.render->n_targets[row];
        const std::int64_t e = seen++ / n_train;
        once.equal(epoch[row] != e, step(i),
                   [&] { return cat("update ", step(i), ": sample ", id, " again in epoch ", e); });
        epoch[row] = e;
      }
      if (!u.n_samples.empty())
        number.equal(u.n_samples[i] == n, step(i),
                     [&] { return cat("update ", step(i), ": ", u.n_samples[i], ", it lists ", n); });
      if (rendered && !u.n_targets.empty())
        tokens.equal(u.n_targets[i] == sum, step(i), [&] {
          return cat("update ", step(i), ": ", u.n_targets[i], ", its samples have ", sum);
        });
    }
    add(number);
    add(tokens);
    add(once);
  }

  // The norm of all tensors is that of their norms; sums of squares in double, norms kept in double or float.
  void norms() {
    const auto& o = run.t.observed;
    if (!o || o->rows == 0 || o->tensor_grad_norm.empty() || u.grad_norm.empty() || u.step.empty()) return;
    Check check(kStage, Step::kNorm, name("norm of its tensors' norms"), Outcome::kBound, "relative");
    const std::size_t p = o->tensor_grad_norm.size() / static_cast<std::size_t>(o->rows);
    for (const auto& [r, i] : common_rows(o->step, u.step).rows) {
      double square = 0.0;
      for (std::size_t k = 0; k < p; ++k) square += std::pow(o->tensor_grad_norm[r * p + k], 2);
      check.within(relative_difference(std::sqrt(square), u.grad_norm[i]), 4 * 0x1p-24, step(i),
                   [&, i = i] { return cat("update ", step(i)); });
    }
    add(check);
  }
};

struct OwnEvaluations {
  const Run& run;
  const std::string who;
  Observations& out;
  const Trajectory::Evals& e = *run.t.evals;

  // B A of some module is not next to zero at evaluation i; false where that is not known.
  bool adapted(std::size_t i) const {
    const auto& a = run.t.activations;
    if (!a || a->n_modules == 0) return false;
    const auto width = static_cast<std::size_t>(a->n_modules);
    if ((i + 1) * width > a->ba_norm.size()) return false;
    return std::any_of(a->ba_norm.begin() + static_cast<std::ptrdiff_t>(i * width),
                       a->ba_norm.begin() + static_cast<std::ptrdiff_t>((i + 1) * width),
                       [](double norm) { return norm > kSmallest; });
  }

  // An adapter that takes part changes the loss; that it leaves every bit of it has no chance to happen.
  void takes_part() {
    if (e.loss.empty() || e.loss_adapter_off.empty()) return;
    Check check(kStage, Step::kAdapter, cat(who, ": the adapter takes part in evaluations"), Outcome::kExact);
    for (std::size_t i = 0; i < e.loss.size() && i < e.step.size(); ++i)
      if (e.step[i] > 0 && adapted(i))
        check.equal(e.loss[i] != e.loss_adapter_off[0] && e.loss[i] != e.loss_adapter_off[1], e.step[i], [&] {
          return cat("evaluation after update ", e.step[i],
                     ": to the bit the loss without adapter, although B A is not 0");
        });
    if (check.checked() > 0) out.push_back(check.result());
  }

  void sums() {
    Check loss(kStage, Step::kEvaluation, cat(who, ": held-out loss is sum over count"), Outcome::kBound,
               "ulp");
    Check tokens(kStage, Step::kEvaluation, cat(who, ": held-out tokens are those of the samples"),
                 Outcome::kExact);
    std::int64_t scored = -1;
    if (run.t.render && !run.t.render->n_targets.empty()) {
      scored = 0;
      for (std::size_t i = static_cast<std::size_t>(run.t.render->n_train);
           i < run.t.render->n_targets.size(); ++i)
        scored += run.t.render->n_targets[i];
    }
    for (std::size_t i = 0; i < e.step.size(); ++i) {
      const auto place = [&] { return cat("evaluation after update ", e.step[i]); };
      if (!e.loss.empty() && !e.nll_sum.empty() && !e.n_tokens.empty())
        loss.within(ulps_apart(e.loss[i], e.nll_sum[i] / static_cast<double>(e.n_tokens[i])), kDoubleUlps,
                    e.step[i], place);
      if (scored >= 0 && !e.n_tokens.empty())
        tokens.equal(e.n_tokens[i] == scored, e.step[i],
                     [&] { return cat(place(), ": ", e.n_tokens[i], ", they have ", scored); });
    }
    for (const Check* check : {&loss, &tokens})
      if (check->checked() > 0) out.push_back(check->result());
  }
};

// B = 0 at the start makes the gradient of A exactly 0 (SPEC.md), unless the run starts from an adapter.
void first_gradient(const Run& run, const char* who, Observations& out) {
  const auto& o = run.t.observed;
  const auto init = run.spec.find("lora.init");
  if (!o || o->rows == 0 || !run.t.adapter || init == run.spec.end() || init->second != "none") return;
  const auto& names = run.t.adapter->names;
  if (o->step.empty() || o->step[0] != 1 || o->tensor_grad_norm.size() < names.size()) return;
  Check check(kStage, Step::kGradient, cat(who, ": gradient of A is 0 while B is"), Outcome::kExact);
  for (std::size_t k = 0; k < names.size(); ++k)
    if (names[k].ends_with(".lora_A.weight"))
      check.equal(o->tensor_grad_norm[k] == 0.0, 1, [&] { return cat("update 1, ", names[k]); });
  if (check.checked() > 0) out.push_back(check.result());
}

}  // namespace

void check_own_numbers(const Run& run, const char* who, Observations& out) {
  if (run.t.updates) {
    Own own{.run = run, .who = who, .out = out};
    own.samples();
    own.counts();
    own.norms();
    own.clip();
    first_gradient(run, who, out);
  }
  if (run.t.evals) {
    OwnEvaluations own{.run = run, .who = who, .out = out};
    own.sums();
    own.takes_part();
  }
}

}  // namespace tandem
