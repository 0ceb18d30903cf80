// Evaluations: of the untrained model (level 1), then of what was trained (level 4).
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

using Evals = Trajectory::Evals;

constexpr const char* kProbeKey = "observe.probe";

// Rows of the evaluation before any update; nullopt where one of the files has none.
std::optional<std::pair<std::size_t, std::size_t>> untrained_rows(const Pair& pair) {
  if (pair.evaluations.steps.empty() || pair.evaluations.steps.front() != 0) return std::nullopt;
  return pair.evaluations.rows.front();
}

// Equal to the bit, or within a limit.
class Rounded {
 public:
  Rounded(const Pair& pair, Stage stage, Step step, const std::string& name, const std::string& unit)
      : pair_(pair),
        exact_(stage, step, name, Outcome::kExact),
        bound_(stage, step, name, Outcome::kBound, unit) {}
  template <class Place>
  void look(double a, double b, double difference, double limit, std::int64_t update, Place&& place) {
    if (pair_.same_bits)
      exact_.equal(same_number(a, b), update, [&] { return cat(place(), ": ", a, " in A, ", b, " in B"); });
    else
      bound_.within(difference, limit, update, place);
  }
  const Check& check() const { return pair_.same_bits ? exact_ : bound_; }

 private:
  const Pair& pair_;
  Check exact_, bound_;
};

double apart(double a, double b) { return same_number(a, b) ? 0.0 : std::abs(a - b); }

void untrained_loss(const Pair& pair, std::size_t r, std::size_t s, Observations& out) {
  const Evals &a = *pair.a.t.evals, &b = *pair.b.t.evals;
  constexpr const char* kName = "untrained held-out loss";
  if (a.loss.empty() || b.loss.empty())
    return out.push_back(
        not_checked(Stage::kUntrained, Step::kEvaluation, kName, "a file has no /eval/loss", true));
  Rounded rounded(pair, Stage::kUntrained, Step::kEvaluation, kName, "relative");
  const double limit = pair.rounding ? pair.rounding->mean_loss(pair.b.n_held_out()) : 0.0;
  const auto place = [&] { return cat(a.loss[r], " in A, ", b.loss[s], " in B"); };
  rounded.look(a.loss[r], b.loss[s], relative_difference(a.loss[r], b.loss[s]), limit / std::abs(b.loss[s]),
               0, place);
  out.push_back(rounded.check().result());
}

// A token of one list of the eight largest has, in the other file, the logit that it is listed with there, or
// one of at most the smallest listed; nothing is known of tokens below both.
void listed_tokens(const Pair& pair, const Trajectory::Probe& a, const Trajectory::Probe& b,
                   Observations& out) {
  constexpr const char* kName = "tokens with the untrained model's largest logits";
  if (a.topk_id.empty() || b.topk_id.empty() || a.topk_logit.empty() || b.topk_logit.empty()) return;
  Check check(Stage::kUntrained, Step::kLoss, kName, pair.same_bits ? Outcome::kExact : Outcome::kBound,
              pair.same_bits ? "" : "of a logit");
  const double limit = pair.rounding ? pair.rounding->logit() : 0.0;
  const auto k = static_cast<std::size_t>(a.tokens.size());
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t begin = i * kTopLogits, end = begin + kTopLogits;
    const auto place = [&](std::int64_t id) {
      return cat("held-out sample ", a.tokens.sample[i], ", token ", a.tokens.position[i], ", id ", id);
    };
    for (std::size_t j = begin; pair.same_bits && j < end; ++j)
      check.equal(a.topk_id[j] == b.topk_id[j], 0, [&] { return place(a.topk_id[j]); });
    if (pair.same_bits) continue;
    for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)})
      for (std::size_t j = begin; j < end; ++j) {
        const std::int64_t id = x->topk_id[j];
        if (id < 0) continue;
        const auto first = y->topk_id.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto found = std::find(first, first + kTopLogits, id) - first;
        const bool listed = found < kTopLogits;
        const double there = y->topk_logit[listed ? begin + static_cast<std::size_t>(found) : end - 1];
        // Beyond the vocabulary there is no logit: all ids are listed.
        const double above = x->topk_logit[j] - there;
        check.within(listed              ? std::abs(above)
                     : std::isnan(there) ? INFINITY
                                         : std::fmax(0.0, above),
                     limit, 0, [&] { return place(id); });
      }
  }
  if (check.checked() > 0) out.push_back(check.result());
}

void untrained_probe(const Pair& pair, const Presence& presence, Observations& out) {
  const auto &a = pair.a.t.probe, &b = pair.b.t.probe;
  constexpr const char* kName = "untrained model's tokens";
  const auto has = [](const auto& p) {
    return p && p->rows > 0 && !p->nll.empty() && !p->target_logit.empty() && !p->tokens.sample.empty() &&
           !p->tokens.position.empty();
  };
  if (!presence.both(Stage::kUntrained, Step::kEvaluation, kName, "/probe/{nll, target_logit}", has(a),
                     has(b), false, kProbeKey))
    return;
  Check same(Stage::kRendering, Step::kState, "tokens of the probe", Outcome::kExact);
  same.equal(a->tokens.sample == b->tokens.sample && a->tokens.position == b->tokens.position &&
                 a->tokens.target == b->tokens.target,
             -1, [] { return "the files probe other tokens"; });
  out.push_back(same.result());
  if (same.failed()) return;
  Rounded nll(pair, Stage::kUntrained, Step::kEvaluation, kName, "nat");
  Rounded logits(pair, Stage::kUntrained, Step::kLoss, "untrained model's logits", "of a logit");
  presence.both(Stage::kUntrained, Step::kLoss, "untrained model's largest logits",
                "/probe/{topk_id, topk_logit}", !a->topk_logit.empty() && !a->topk_id.empty(),
                !b->topk_logit.empty() && !b->topk_id.empty(), false);
  const auto k = static_cast<std::size_t>(a->tokens.size());
  const double limit = pair.rounding ? pair.rounding->logit() : 0.0;
  for (std::size_t i = 0; i < k; ++i) {
    const auto place = [&] {
      return cat("held-out sample ", a->tokens.sample[i], ", token ", a->tokens.position[i]);
    };
    nll.look(a->nll[i], b->nll[i], apart(a->nll[i], b->nll[i]), 2 * limit, 0, place);
    logits.look(a->target_logit[i], b->target_logit[i], apart(a->target_logit[i], b->target_logit[i]), limit,
                0, place);
    // Sorted values move at most as far as the values do, whichever token they belong to.
    if (!a->topk_logit.empty() && !b->topk_logit.empty())
      for (std::size_t j = i * kTopLogits; j < (i + 1) * kTopLogits; ++j)
        logits.look(a->topk_logit[j], b->topk_logit[j], apart(a->topk_logit[j], b->topk_logit[j]), limit, 0,
                    place);
  }
  out.push_back(logits.check().result());
  out.push_back(nll.check().result());
  listed_tokens(pair, *a, *b, out);
}

void untrained_activations(const Pair& pair, const Presence& presence, Observations& out) {
  const auto &a = pair.a.t.activations, &b = pair.b.t.activations;
  constexpr const char* kName = "untrained model's activations";
  const auto has = [](const auto& x) { return x && x->rows > 0 && x->n_layers > 0 && !x->absmax.empty(); };
  if (!presence.both(Stage::kUntrained, Step::kState, kName, "/activation/{rms, absmax}", has(a), has(b),
                     false, kProbeKey))
    return;
  Rounded rounded(pair, Stage::kUntrained, Step::kState, kName, "relative");
  if (a->n_layers != b->n_layers) {
    Check check(Stage::kUntrained, Step::kState, kName, Outcome::kExact);
    check.equal(false, 0, [&] { return cat(a->n_layers, " layers in A, ", b->n_layers, " in B"); });
    return out.push_back(check.result());
  }
  for (std::int64_t l = 0; l < a->n_layers; ++l) {
    const auto i = static_cast<std::size_t>(l);
    const double limit = pair.rounding ? pair.rounding->activation(l) : 0.0;
    rounded.look(a->rms[i], b->rms[i], relative_difference(a->rms[i], b->rms[i]), limit, 0,
                 [&] { return cat("after layer ", l, ", rms"); });
    rounded.look(a->absmax[i], b->absmax[i], relative_difference(a->absmax[i], b->absmax[i]), limit, 0,
                 [&] { return cat("after layer ", l, ", largest"); });
  }
  out.push_back(rounded.check().result());
}

// The base model alone, at the start and at the end: no history, so rounding is all that may part them.
void without_adapter(const Pair& pair, const Presence& presence, Observations& out) {
  const Evals &a = *pair.a.t.evals, &b = *pair.b.t.evals;
  constexpr const char* kName = "held-out loss without adapter";
  if (!presence.both(Stage::kUntrained, Step::kEvaluation, kName, "/eval/loss_adapter_off",
                     !a.loss_adapter_off.empty(), !b.loss_adapter_off.empty(), true))
    return;
  Rounded rounded(pair, Stage::kUntrained, Step::kEvaluation, kName, "relative");
  for (std::size_t i = 0; i < 2; ++i) {
    const double x = a.loss_adapter_off[i], y = b.loss_adapter_off[i];
    const double limit = pair.rounding ? pair.rounding->mean_loss(pair.b.n_held_out()) / std::abs(y) : 0.0;
    rounded.look(x, y, relative_difference(x, y), limit, 0,
                 [&] { return i ? "at the end" : "at the start"; });
  }
  out.push_back(rounded.check().result());
}

// What every evaluation after an update records of the held-out set: to the bit, or not at all.
void trained_observations(const Pair& pair, Observations& out) {
  if (!pair.same_bits) return;
  const auto each = [&](const char* name, const auto& columns) {
    Check check(Stage::kTrajectory, Step::kEvaluation, name, Outcome::kExact);
    for (const auto& [path, x, y] : columns)
      for (std::size_t i = 0; i < pair.evaluations.rows.size(); ++i) {
        const auto [r, s] = pair.evaluations.rows[i];
        const std::int64_t t = pair.evaluations.steps[i];
        const std::size_t rows = pair.a.t.evals->step.size(), other = pair.b.t.evals->step.size();
        const std::size_t width = x->size() / rows;
        // A column that one file lacks, or of another width, is told of the untrained model.
        if (t == 0 || x->empty() || y->empty() || width != y->size() / other) continue;
        for (std::size_t k = 0; k < width; ++k)
          check.equal(
              same_number(static_cast<double>((*x)[r * width + k]), static_cast<double>((*y)[s * width + k])),
              t, [&, path = path] { return cat("evaluation after update ", t, ", ", path); });
      }
    check.say("to the bit");
    if (check.checked() > 0) out.push_back(check.result());
  };
  using Column = std::tuple<const char*, const std::vector<double>*, const std::vector<double>*>;
  if (const auto& a = pair.a.t.activations, &b = pair.b.t.activations; a && b)
    each("activations after updates",
         std::vector<Column>{{"rms", &a->rms, &b->rms}, {"largest", &a->absmax, &b->absmax}});
  if (const auto& a = pair.a.t.probe, &b = pair.b.t.probe; a && b) {
    each("probed tokens after updates",
         std::vector<Column>{{"nll", &a->nll, &b->nll},
                             {"target's logit", &a->target_logit, &b->target_logit},
                             {"largest logits", &a->topk_logit, &b->topk_logit}});
    using Ids = std::tuple<const char*, const std::vector<std::int64_t>*, const std::vector<std::int64_t>*>;
    each("tokens with the largest logits after updates", std::vector<Ids>{{"ids", &a->topk_id, &b->topk_id}});
  }
}

template <class T>
void exact_column(const Pair& pair, const Presence& presence, const char* name, const char* path,
                  const std::vector<T>& x, const std::vector<T>& y, Observations& out) {
  if (!presence.both(Stage::kTrajectory, Step::kEvaluation, name, path, !x.empty(), !y.empty(), true)) return;
  Check check(Stage::kTrajectory, Step::kEvaluation, name, Outcome::kExact);
  for (std::size_t i = 0; i < pair.evaluations.rows.size(); ++i) {
    const auto [r, s] = pair.evaluations.rows[i];
    check.equal(x[r] == y[s], pair.evaluations.steps[i], [&, r = r, s = s] {
      return cat("evaluation after update ", pair.evaluations.steps[i], ": ", x[r], " in A, ", y[s], " in B");
    });
  }
  out.push_back(check.result());
}

void evaluation_steps(const Pair& pair, Observations& out) {
  const CommonRows& rows = pair.evaluations;
  // One file may end before the other; within what both have, they must evaluate alike.
  const auto last = [](const Run& run) { return run.t.evals->step.empty() ? -1 : run.t.evals->step.back(); };
  const std::int64_t end = std::min(last(pair.a), last(pair.b));
  Check check(Stage::kTrajectory, Step::kEvaluation, "steps of the evaluations", Outcome::kExact);
  for (const auto& [step, who] : {std::pair(rows.only_a, "A"), std::pair(rows.only_b, "B")})
    check.equal(step < 0 || step > end, step, [step = step, who = who] {
      return cat("the one after update ", step, " is in ", who, " alone");
    });
  check.say(counted(rows.rows.size(), "evaluation"));
  out.push_back(check.result());
  const std::int64_t wanted = std::max({pair.a.planned().value_or(0), last(pair.a), last(pair.b)});
  for (const auto& [run, who] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")}) {
    if (last(*run) < wanted)
      out.push_back(not_checked(Stage::kTrajectory, Step::kEvaluation,
                                cat("evaluations after update ", last(*run)), cat(who, " has none"), true));
    else if (run->t.evals->step.front() != 0)
      out.push_back(not_checked(Stage::kTrajectory, Step::kEvaluation, "evaluation before the first update",
                                cat(who, " has none"), true));
  }
}

void initial_adapter(const Pair& pair, const Presence& presence, Observations& out) {
  const auto rows = untrained_rows(pair);
  const Evals &a = *pair.a.t.evals, &b = *pair.b.t.evals;
  constexpr const char* kName = "initial adapter";
  if (!rows || !presence.both(Stage::kTrajectory, Step::kState, kName, "/eval/adapter_digest",
                              !a.adapter_digest.empty(), !b.adapter_digest.empty(), true))
    return;
  Check check(Stage::kTrajectory, Step::kState, kName, Outcome::kExact);
  check.equal(a.adapter_digest[rows->first] == b.adapter_digest[rows->second], 0,
              [] { return "before the first update: other values"; });
  out.push_back(check.result());
  if (pair.same_bits)
    exact_column(pair, presence, "adapter's digest", "/eval/adapter_digest", a.adapter_digest,
                 b.adapter_digest, out);
}

void trained_loss(const Pair& pair, const Presence& presence, Observations& out) {
  const Evals &a = *pair.a.t.evals, &b = *pair.b.t.evals;
  constexpr const char* kName = "held-out loss";
  if (!presence.both(Stage::kTrajectory, Step::kEvaluation, kName, "/eval/loss", !a.loss.empty(),
                     !b.loss.empty(), true))
    return;
  Rounded rounded(pair, Stage::kTrajectory, Step::kEvaluation, kName, "relative");
  std::int64_t left = 0;
  for (std::size_t i = 0; i < pair.evaluations.rows.size(); ++i) {
    const auto [r, s] = pair.evaluations.rows[i];
    const std::int64_t t = pair.evaluations.steps[i];
    if (t == 0) continue;
    if (!pair.same_bits && (!pair.rounding || t >= pair.rounding->horizon())) {
      ++left;
      continue;
    }
    const double limit =
        pair.same_bits ? 0.0 : pair.rounding->evaluation(t, pair.b.n_held_out()) / std::abs(b.loss[s]);
    rounded.look(a.loss[r], b.loss[s], relative_difference(a.loss[r], b.loss[s]), limit, t,
                 [&] { return cat("evaluation after update ", t); });
  }
  if (rounded.check().checked() > 0) out.push_back(rounded.check().result());
  if (left > 0)
    out.push_back(not_checked(Stage::kTrajectory, Step::kEvaluation,
                              cat(kName, ", ", counted(left, "evaluation")),
                              pair.rounding ? kGrown : pair.no_rounding));
}

// Norms of the adapter, which are its own history's: to the bit, or for as long as rounding is small.
void adapter_norms(const Pair& pair, const Presence& presence, Observations& out) {
  const auto &a = pair.a.t.activations, &b = pair.b.t.activations;
  const auto names = pair.a.t.adapter ? pair.a.t.adapter->names : std::vector<std::string>();
  const auto each = [&](const char* name, const char* path, std::int64_t width_a, std::int64_t width_b,
                        const std::vector<double>* x, const std::vector<double>* y, bool updates) {
    if (!presence.both(Stage::kTrajectory, Step::kEvaluation, name, path, x && !x->empty(), y && !y->empty(),
                       false))
      return;
    const auto rows_of = [](const std::vector<double>& v, std::int64_t width) {
      return v.size() / static_cast<std::size_t>(width);
    };
    Check exact(Stage::kTrajectory, Step::kEvaluation, name, Outcome::kExact),
        bound(Stage::kTrajectory, Step::kEvaluation, name, Outcome::kBound, "relative");
    if (width_a != width_b) {
      exact.equal(false, -1, [&] { return cat(width_a, " in A, ", width_b, " in B"); });
      return out.push_back(exact.result());
    }
    std::int64_t left = 0;
    const auto width = static_cast<std::size_t>(width_a);
    for (std::size_t i = 0; i < pair.evaluations.rows.size(); ++i) {
      const auto [r, s] = pair.evaluations.rows[i];
      const std::int64_t t = pair.evaluations.steps[i];
      if (r >= rows_of(*x, width_a) || s >= rows_of(*y, width_b)) continue;
      const bool judged = pair.same_bits || t == 0 || (updates && pair.rounding && t == 1);
      left += !judged;
      for (std::size_t k = 0; judged && k < width; ++k) {
        const double p = (*x)[r * width + k], q = (*y)[s * width + k];
        const auto place = [&] {
          const std::size_t tensor = updates ? k : 2 * k;
          return cat("after update ", t, ", ", tensor < names.size() ? names[tensor] : cat("number ", k));
        };
        if (pair.same_bits || t == 0)
          exact.equal(same_number(p, q) || (t == 0 && !pair.same_bits && relative_difference(p, q) < 1e-6), t,
                      place);
        else {
          // p(t) is stored in float32: an element's change is off by half its last place, so by 2^-24 of an
          // element as large as the drawn A's, at most 1; rounded changes of a learning rate's size.
          const double lr =
              pair.b.t.updates && !pair.b.t.updates->lr.empty() ? pair.b.t.updates->lr.front() : 0.0;
          const double stored = lr > 0.0 ? 0x1p-24 / lr : 0.0;
          bound.within(relative_difference(p, q), pair.rounding->update(1) + stored, t, place);
        }
      }
    }
    if (exact.checked() > 0 && bound.checked() == 0) out.push_back(exact.result());
    if (bound.checked() > 0) out.push_back(exact.failed() ? exact.result() : bound.result());
    if (left > 0)
      out.push_back(not_checked(Stage::kTrajectory, Step::kEvaluation,
                                cat(name, ", ", counted(left, "evaluation")),
                                pair.rounding ? kGrown : pair.no_rounding));
  };
  each("norm of each module's B A", "/activation/ba_norm", a ? a->n_modules : 0, b ? b->n_modules : 0,
       a ? &a->ba_norm : nullptr, b ? &b->ba_norm : nullptr, false);
  each("norm of each tensor's change", "/activation/update_norm", a ? a->n_tensors : 0, b ? b->n_tensors : 0,
       a ? &a->update_norm : nullptr, b ? &b->update_norm : nullptr, true);
}

}  // namespace

void check_untrained(const Pair& pair, Observations& out) {
  if (!pair.a.held_out() && !pair.b.held_out() && !pair.a.t.evals && !pair.b.t.evals) {
    out.push_back(
        not_checked(Stage::kUntrained, Step::kState, "untrained model", "the spec has no held-out rows"));
    return;
  }
  const auto rows = untrained_rows(pair);
  if (!rows) {
    out.push_back(not_checked(Stage::kUntrained, Step::kState, "untrained model",
                              "no evaluation before the first update in both", true));
    return;
  }
  if (!pair.same_bits && !pair.rounding) {
    out.push_back(not_checked(Stage::kUntrained, Step::kState, "untrained model", pair.no_rounding, true));
    return;
  }
  const Presence presence(pair, out);
  untrained_activations(pair, presence, out);
  untrained_probe(pair, presence, out);
  untrained_loss(pair, rows->first, rows->second, out);
  without_adapter(pair, presence, out);
}

void check_evaluations(const Pair& pair, Observations& out) {
  if (!pair.a.held_out() && !pair.b.held_out() && !pair.a.t.evals && !pair.b.t.evals) return;
  const Presence presence(pair, out);
  if (!presence.both(Stage::kTrajectory, Step::kEvaluation, "evaluations", "/eval",
                     pair.a.t.evals.has_value(), pair.b.t.evals.has_value(), true))
    return;
  const Evals &a = *pair.a.t.evals, &b = *pair.b.t.evals;
  if (!presence.both(Stage::kTrajectory, Step::kEvaluation, "steps of the evaluations", "/eval/step",
                     !a.step.empty(), !b.step.empty(), true))
    return;
  presence.both(Stage::kTrajectory, Step::kEvaluation, "sum behind the held-out loss", "/eval/nll_sum",
                !a.nll_sum.empty(), !b.nll_sum.empty(), true);
  evaluation_steps(pair, out);
  exact_column(pair, presence, "held-out tokens", "/eval/n_tokens", pair.a.t.evals->n_tokens,
               pair.b.t.evals->n_tokens, out);
  initial_adapter(pair, presence, out);
  trained_loss(pair, presence, out);
  adapter_norms(pair, presence, out);
  trained_observations(pair, out);
}

}  // namespace tandem
