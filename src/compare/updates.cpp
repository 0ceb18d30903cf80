// Level 4: the updates, row by row.
#include <algorithm>
#include <cmath>

#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

using Updates = Trajectory::Updates;

constexpr Stage kStage = Stage::kTrajectory;
constexpr double kRateUlps = 4.0;  // SPEC.md, "Optimiser"

struct Rows {
  const Pair& pair;
  const Updates& a = *pair.a.t.updates;
  const Updates& b = *pair.b.t.updates;
  const Presence presence;
  Observations& out;

  std::size_t size() const { return pair.updates.rows.size(); }
  std::int64_t step(std::size_t i) const { return pair.updates.steps[i]; }
  std::string place(std::size_t i) const { return cat("update ", step(i)); }

  // False where rows cannot be put side by side.
  bool steps() {
    if (!presence.both(kStage, Step::kState, "steps of the updates", "/update/step", !a.step.empty(),
                       !b.step.empty(), true))
      return false;
    Check check(kStage, Step::kState, "steps of the updates", Outcome::kExact);
    for (const auto& [run, who] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")}) {
      const std::vector<std::int64_t>& steps = run->t.updates->step;
      for (std::size_t i = 0; i < steps.size(); ++i)
        check.equal(steps[i] == static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(i) + 1,
                    [&, who = who] { return cat(who, ": row ", i, " is update ", steps[i]); });
      if (const auto planned = run->planned())
        check.equal(run->updates() <= *planned, *planned + 1, [&, run = run, who = who] {
          return cat(who, ": ", run->updates(), " updates of ", *planned);
        });
    }
    check.say(counted(size(), "update"));
    out.push_back(check.result());
    const std::int64_t wanted = std::max({pair.a.planned().value_or(1), pair.a.updates(), pair.b.updates()});
    for (const auto& [run, who] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")})
      if (run->updates() < wanted)
        out.push_back(not_checked(kStage, Step::kState, cat("updates after ", run->updates()),
                                  cat(who, " has ", run->updates(), " of ", counted(wanted, "update")),
                                  true));
    return true;
  }

  template <class T>
  void exact(const char* name, const char* path, Step at, const std::vector<T>& x, const std::vector<T>& y) {
    if (!presence.both(kStage, at, name, path, !x.empty(), !y.empty(), true)) return;
    Check check(kStage, at, name, Outcome::kExact);
    for (std::size_t i = 0; i < size(); ++i) {
      const auto [r, s] = pair.updates.rows[i];
      check.equal(x[r] == y[s], step(i),
                  [&, r = r, s = s] { return cat(place(i), ": ", x[r], " in A, ", y[s], " in B"); });
    }
    out.push_back(check.result());
  }

  void sample_ids() {
    constexpr const char* kName = "order of samples";
    if (!presence.both(kStage, Step::kSamples, kName, "/update/sample_ids", a.batch_global > 0,
                       b.batch_global > 0, true))
      return;
    Check check(kStage, Step::kSamples, kName, Outcome::kExact);
    check.equal(a.batch_global == b.batch_global, 0,
                [&] { return cat("global batch of ", a.batch_global, " in A, ", b.batch_global, " in B"); });
    const auto width = static_cast<std::size_t>(std::min(a.batch_global, b.batch_global));
    for (std::size_t i = 0; i < size(); ++i) {
      const auto [r, s] = pair.updates.rows[i];
      const std::int64_t* const x = &a.sample_ids[r * static_cast<std::size_t>(a.batch_global)];
      const std::int64_t* const y = &b.sample_ids[s * static_cast<std::size_t>(b.batch_global)];
      const auto at = static_cast<std::size_t>(std::mismatch(x, x + width, y).first - x);
      check.equal(at == width, step(i), [&] {
        return cat(place(i), ", position ", at, ": sample ", x[at], " in A, ", y[at], " in B");
      });
    }
    out.push_back(check.result());
  }

  void learning_rate() {
    if (!presence.both(kStage, Step::kRate, "learning rate", "/update/lr", !a.lr.empty(), !b.lr.empty(),
                       true))
      return;
    Check check(kStage, Step::kRate, "learning rate", Outcome::kBound, "ulp");
    for (std::size_t i = 0; i < size(); ++i) {
      const auto [r, s] = pair.updates.rows[i];
      check.within(ulps_apart(a.lr[r], b.lr[s]), kRateUlps, step(i), [&] { return place(i); });
    }
    out.push_back(check.result());
  }

  // Numbers that only rounding may part: equal to the bit where that is promised, else within what the model
  // of rounding says, for as long as it says anything. limit(i): relative.
  template <class Limit>
  void rounded(const char* name, const char* path, Step at, const std::vector<double>& x,
               const std::vector<double>& y, Limit&& limit) {
    if (!presence.both(kStage, at, name, path, !x.empty(), !y.empty(), true)) return;
    if (pair.same_bits) {
      Check check(kStage, at, name, Outcome::kExact);
      for (std::size_t i = 0; i < size(); ++i) {
        const auto [r, s] = pair.updates.rows[i];
        check.equal(same_number(x[r], y[s]), step(i), [&, r = r, s = s] {
          return cat(place(i), ": relative difference ", short_number(relative_difference(x[r], y[s])));
        });
      }
      check.say("to the bit");
      return out.push_back(check.result());
    }
    if (!pair.rounding) return out.push_back(not_checked(kStage, at, name, pair.no_rounding));
    Check check(kStage, at, name, Outcome::kBound, "relative");
    const std::int64_t horizon = pair.rounding->horizon();
    for (std::size_t i = 0; i < size() && step(i) <= horizon; ++i) {
      const auto [r, s] = pair.updates.rows[i];
      check.within(relative_difference(x[r], y[s]), limit(i, y[s]), step(i), [&] { return place(i); });
    }
    if (check.checked() > 0) out.push_back(check.result());
    // Whatever the history, a number stays a number.
    Check finite(kStage, at, cat(name, " is a number in both or in none"), Outcome::kExact);
    for (std::size_t i = 0; i < size(); ++i) {
      const auto [r, s] = pair.updates.rows[i];
      finite.equal(std::isfinite(x[r]) == std::isfinite(y[s]), step(i),
                   [&, r = r, s = s] { return cat(place(i), ": ", x[r], " in A, ", y[s], " in B"); });
    }
    out.push_back(finite.result());
    if (size() > 0 && pair.updates.steps.back() > horizon)
      out.push_back(not_checked(kStage, at, cat(name, " after update ", horizon), kGrown));
  }

  void checksums() {
    if (!pair.same_bits) {
      // Exact between runs of one execution class only, but every stack writes it.
      presence.both(kStage, Step::kAdapter, "adapter's checksum", "/update/adapter_checksum",
                    !a.adapter_checksum.empty(), !b.adapter_checksum.empty(), true);
      return;
    }
    exact("checksum of the reduced gradient", "/update/checksum", Step::kGradient, a.checksum, b.checksum);
    exact("adapter's checksum", "/update/adapter_checksum", Step::kAdapter, a.adapter_checksum,
          b.adapter_checksum);
  }
};

void tensor_norms(const Pair& pair, const Presence& presence, Observations& out) {
  constexpr const char* kName = "gradient norm of each tensor";
  const auto &x = pair.a.t.observed, &y = pair.b.t.observed;
  const auto has = [](const auto& o) { return o && !o->tensor_grad_norm.empty(); };
  if (!presence.both(kStage, Step::kNorm, kName, "/observed/tensor_grad_norm", has(x), has(y), false,
                     "observe.every"))
    return;
  const std::size_t p = x->tensor_grad_norm.size() / static_cast<std::size_t>(x->rows);
  const auto& names = pair.a.t.adapter ? pair.a.t.adapter->names : std::vector<std::string>();
  if (p * static_cast<std::size_t>(y->rows) != y->tensor_grad_norm.size() || names.size() != p) {
    Check check(kStage, Step::kNorm, kName, Outcome::kExact);
    check.equal(false, -1, [] { return "the files have other numbers of tensors"; });
    return out.push_back(check.result());
  }
  const CommonRows common = common_rows(x->step, y->step);
  if (common.rows.empty())
    return out.push_back(not_checked(kStage, Step::kNorm, kName, "no update was observed in both"));
  Check exact(kStage, Step::kNorm, kName, Outcome::kExact),
      bound(kStage, Step::kNorm, kName, Outcome::kBound, "relative");
  std::int64_t left = 0;
  for (std::size_t i = 0; i < common.rows.size(); ++i) {
    const std::int64_t t = common.steps[i];
    const auto row = [&](const auto& o, std::size_t r) {
      return std::span(o->tensor_grad_norm).subspan(r * p, p);
    };
    const auto a = row(x, common.rows[i].first), b = row(y, common.rows[i].second);
    if (!pair.same_bits && (!pair.rounding || t > pair.rounding->horizon())) {
      ++left;
      continue;
    }
    // A tensor whose gradient is next to nothing has no relative error of its own (src/audit's floor).
    std::vector<double> some;
    for (const double norm : b)
      if (norm > 0.0) some.push_back(norm);
    double floor = 0.0;
    if (!some.empty()) {
      std::nth_element(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(some.size() / 2), some.end());
      floor = 1e-3 * some[some.size() / 2];
    }
    for (std::size_t k = 0; k < p; ++k) {
      const auto place = [&] { return cat("update ", t, ", ", names[k]); };
      if (pair.same_bits)
        exact.equal(same_number(a[k], b[k]), t, place);
      else if (a[k] == 0.0 && b[k] == 0.0)
        bound.within(0.0, pair.rounding->gradient(t), t, place);
      else
        bound.within(std::abs(a[k] - b[k]) / (b[k] + floor), pair.rounding->gradient(t), t, place);
    }
  }
  const Check& check = pair.same_bits ? exact : bound;
  if (check.checked() > 0) out.push_back(check.result());
  if (left > 0)
    out.push_back(not_checked(kStage, Step::kNorm, cat(kName, check.checked() > 0 ? ", later" : ""),
                              pair.rounding ? kGrown : pair.no_rounding));
}

}  // namespace

void check_adapter(const Pair& pair, Observations& out) {
  const auto &a = pair.a.t.adapter, &b = pair.b.t.adapter;
  constexpr const char* kName = "adapter's tensors";
  if (!Presence(pair, out).both(kStage, Step::kState, kName, "/adapter/{names, shapes}",
                                a && !a->names.empty() && !a->shapes.empty(),
                                b && !b->names.empty() && !b->shapes.empty(), true))
    return;
  Check check(kStage, Step::kState, kName, Outcome::kExact);
  check.equal(a->names.size() == b->names.size(), 0,
              [&] { return cat(a->names.size(), " in A, ", b->names.size(), " in B"); });
  for (std::size_t p = 0; p < std::min(a->names.size(), b->names.size()); ++p)
    check.equal(a->names[p] == b->names[p] && a->shapes[p] == b->shapes[p], 0, [&] {
      const auto text = [&](const auto& x) {
        return cat(x->names[p], " [", x->shapes[p].first, ", ", x->shapes[p].second, "]");
      };
      return cat(text(a), " in A, ", text(b), " in B");
    });
  check.say(counted(a->names.size(), "tensor"));
  out.push_back(check.result());
}

void check_updates(const Pair& pair, Observations& out) {
  const Presence presence(pair, out);
  if (!presence.both(kStage, Step::kState, "updates", "/update", pair.a.t.updates.has_value(),
                     pair.b.t.updates.has_value(), true))
    return;
  Rows rows{.pair = pair, .presence = presence, .out = out};
  if (!rows.steps()) return;
  rows.sample_ids();
  rows.exact("samples of each update", "/update/n_samples", Step::kSamples, rows.a.n_samples,
             rows.b.n_samples);
  rows.exact("scored tokens of each update", "/update/n_targets", Step::kCounts, rows.a.n_targets,
             rows.b.n_targets);
  rows.exact("optimiser steps", "/update/optimizer_step", Step::kOptimiser, rows.a.optimizer_step,
             rows.b.optimizer_step);
  rows.learning_rate();
  rows.rounded("loss of each update", "/update/loss", Step::kLoss, rows.a.loss, rows.b.loss,
               [&](std::size_t i, double loss) {
                 return pair.rounding->loss(rows.step(i), pair.samples_of(static_cast<std::int64_t>(i))) /
                        std::abs(loss);
               });
  const auto of_gradient = [&](std::size_t i, double) { return pair.rounding->gradient(rows.step(i)); };
  rows.rounded("gradient norm", "/update/grad_norm", Step::kNorm, rows.a.grad_norm, rows.b.grad_norm,
               of_gradient);
  // min(1, c / norm) changes at most as much as the norm, relatively.
  rows.rounded("clip factor", "/update/clip", Step::kClip, rows.a.clip, rows.b.clip, of_gradient);
  rows.checksums();
  tensor_norms(pair, presence, out);
}

}  // namespace tandem
