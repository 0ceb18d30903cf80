#include "src/compare/replicates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/compare/numbers.hpp"
#include "src/compare/statistics.hpp"

namespace tandem {

namespace {

constexpr double kParametricLevel = 0.01;  // false alarms of Student's t over the whole series
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

using Series = std::vector<double>;

// |x_t - mean of the others| / sd of the others; NaN where the others do not vary.
double distance(double x, std::span<const double> others) {
  // Equal values have a standard deviation of rounding only.
  const auto [least, most] = std::minmax_element(others.begin(), others.end());
  const double sd = *least == *most ? 0.0 : standard_deviation(others);
  return sd > 0.0 && std::isfinite(x) ? std::abs(x - mean_of(others)) / sd : kNone;
}

struct Peak {
  double value = 0.0;
  std::size_t at = 0;
  bool any = false;
};

// S of run j among all runs.
Peak peak_of(const std::vector<Series>& runs, std::size_t j) {
  Peak out;
  for (std::size_t t = 0; t < runs[j].size(); ++t) {
    Series others;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (i != j) others.push_back(runs[i][t]);
    const double d = distance(runs[j][t], others);
    if (std::isnan(d)) continue;
    if (!out.any || d > out.value) out.value = d, out.at = t;
    out.any = true;
  }
  return out;
}

// The candidate's deviation from the replicates' mean, less what one pass may round, made as small as theirs.
Series shrunk(std::span<const double> candidate, const std::vector<Series>& replicates,
              const OtherRounding& rounding) {
  Series out;
  for (std::size_t t = 0; t < candidate.size(); ++t) {
    Series at;
    for (const Series& r : replicates) at.push_back(r[t]);
    const double mean = mean_of(at), deviation = candidate[t] - mean;
    const double size =
        std::isnan(deviation) ? deviation : std::fmax(0.0, std::abs(deviation) - rounding.of_pass(t));
    out.push_back(mean + std::copysign(size, deviation) / rounding.scale);
  }
  return out;
}

// What stands out of the envelope, relative to the values: the median over t.
double smallest_seen(const std::vector<Series>& replicates, double limit, const OtherRounding& rounding) {
  Series all;
  for (std::size_t t = 0; t < replicates[0].size(); ++t) {
    Series at;
    for (const Series& r : replicates) at.push_back(r[t]);
    const double seen =
        (limit * rounding.scale * standard_deviation(at) + rounding.of_pass(t)) / std::abs(mean_of(at));
    if (std::isfinite(seen)) all.push_back(seen);
  }
  return quantile(all, 0.5);
}

// Why c is of another stack than a; "" where it is of the same.
std::string other_stack(const Trajectory& a, const Trajectory& c) {
  const Run first(a), other(c);
  if (a.stack != c.stack) return cat("stack ", c.stack, ", not ", a.stack);
  for (const char* fact : {"arithmetic", "orchestration", "runtime"})
    if (first.of(fact) != other.of(fact)) return cat("other ", fact);
  const auto x = first.execution.find("precision"), y = other.execution.find("precision");
  if (x != first.execution.end() && y != other.execution.end() && x->second != y->second)
    return cat("precision ", y->second);
  return "";
}

bool same_stack(const Trajectory& a, const Trajectory& b) { return other_stack(a, b).empty(); }

void require_replicate(const Trajectory& a, const Trajectory& c) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kInput, cat(c.path.string(), ": is no replicate of ", a.path.string(), ": ", why));
  };
  if (a.spec_text != c.spec_text) refuse("another spec");
  if (const std::string why = other_stack(a, c); !why.empty()) refuse(why);
  const auto steps = [](const Trajectory& t) {
    return t.updates ? t.updates->step : std::vector<std::int64_t>();
  };
  const auto evaluated = [](const Trajectory& t) {
    return t.evals ? t.evals->step : std::vector<std::int64_t>();
  };
  if (steps(a) != steps(c) || evaluated(a) != evaluated(c)) refuse("other updates or evaluations");
  // A value that is none would take its update out of what is judged. A loss is NaN where nothing is scored.
  for (std::size_t i = 0; c.updates && i < c.updates->step.size(); ++i) {
    const auto& u = *c.updates;
    const bool scored = i >= u.n_targets.size() || u.n_targets[i] > 0;
    if ((scored && i < u.loss.size() && !std::isfinite(u.loss[i])) ||
        (i < u.grad_norm.size() && !std::isfinite(u.grad_norm[i])))
      refuse(cat("its loss or gradient norm of update ", u.step[i], " is not a number"));
  }
  for (std::size_t i = 0; c.evals && i < c.evals->step.size() && i < c.evals->loss.size(); ++i)
    if (!std::isfinite(c.evals->loss[i]))
      refuse(cat("its held-out loss after update ", c.evals->step[i], " is not a number"));
}

using Column = std::function<const Series*(const Trajectory&)>;

constexpr std::size_t kStart = 5;  // updates in which differences have hardly grown

// Root mean square of the relative differences of gradient norms in updates [begin, end).
double norm_distance(const Trajectory& a, const Trajectory& b, std::size_t begin, std::size_t end) {
  if (!a.updates || !b.updates) return kNone;
  const Series &x = a.updates->grad_norm, &y = b.updates->grad_norm;
  double square = 0.0;
  for (std::size_t t = begin; t < end; ++t) {
    if (t >= x.size() || t >= y.size()) return kNone;
    square += std::pow((x[t] - y[t]) / y[t], 2);
  }
  return std::sqrt(square / static_cast<double>(end - begin));
}

// Of all pairs of replicates, the median.
double replicate_distance(const std::vector<const Trajectory*>& replicates, std::size_t begin,
                          std::size_t end) {
  Series all;
  for (std::size_t i = 0; i < replicates.size(); ++i)
    for (std::size_t j = i + 1; j < replicates.size(); ++j)
      all.push_back(norm_distance(*replicates[i], *replicates[j], begin, end));
  return quantile(all, 0.5);
}

// Updates in which differences between replicates grow e-fold: from when they have grown tenfold; all of them
// where they never do.
double growth_time(const std::vector<const Trajectory*>& replicates, double start, std::size_t updates) {
  for (std::size_t t = kStart; t + kStart <= updates; ++t)
    if (replicate_distance(replicates, t, t + kStart) > 10 * start)
      return static_cast<double>(t) / std::log(10.0);
  return static_cast<double>(updates);
}

// How many times as large B's rounding is as what parts replicates; NaN: not known. Their first updates tell
// how far each starts from the others. And rounding of one kind is the same in every update: it adds up in
// one direction for as long as growth does not outrun it, where that of replicates adds up at random.
double rounding_scale(const Trajectory& b, const std::vector<const Trajectory*>& replicates) {
  Series others;
  for (const Trajectory* r : replicates) others.push_back(norm_distance(b, *r, 0, kStart));
  const double between = replicate_distance(replicates, 0, kStart);
  const double scale = quantile(others, 0.5) / between;
  if (!std::isfinite(scale)) return kNone;
  return std::fmax(1.0, scale) * std::sqrt(growth_time(replicates, between, b.updates->grad_norm.size()));
}

void judge(const std::string& name, Step step, std::span<const std::int64_t> steps, const Series& candidate,
           const std::vector<Series>& replicates, const OtherRounding& rounding, Observations& out) {
  const auto found = envelope_of(candidate, replicates, rounding);
  if (!found) {
    out.push_back(not_checked(Stage::kTrajectory, step, name,
                              cat(counted(replicates.size(), "replicate"), " that nowhere differ")));
    return;
  }
  Check check(Stage::kTrajectory, step, name, Outcome::kCalibrated, "standard deviations of replicates");
  check.within(found->statistic, found->limit, steps[found->at],
               [&] { return cat("update ", steps[found->at]); });
  check.say(cat(counted(replicates.size(), "replicate"), found->by_rank ? ", by rank" : ", Student's t",
                ", false alarms at most ", short_number(100 * found->false_alarms),
                " %, B's rounding taken as ", short_number(rounding.scale),
                " times theirs, a shift is seen from ", short_number(100 * found->seen), " %"));
  out.push_back(check.result());
}

}  // namespace

std::optional<Envelope> envelope_of(std::span<const double> candidate, const std::vector<Series>& replicates,
                                    const OtherRounding& rounding) {
  const std::size_t k = replicates.size();
  if (k < kFewestReplicates) return std::nullopt;
  std::vector<Series> runs = replicates;
  runs.push_back(shrunk(candidate, replicates, rounding));
  const Peak own = peak_of(runs, k);
  if (!own.any) return std::nullopt;
  Envelope out;
  out.statistic = own.value;
  out.at = own.at;
  const auto count = static_cast<double>(k);
  // The candidate is one of K + 1 runs that may change places: each S has the same chance to be the largest.
  out.by_rank = k >= kRankReplicates;
  if (out.by_rank) {
    for (std::size_t j = 0; j < k; ++j) out.limit = std::fmax(out.limit, peak_of(runs, j).value);
    out.false_alarms = 1 / (count + 1);
  } else {
    // A new value lies within t sqrt(1 + 1/K) standard deviations of K normal ones; Bonferroni over the
    // series.
    out.false_alarms = kParametricLevel;
    out.limit = student_two_sided(count - 1, kParametricLevel / static_cast<double>(candidate.size())) *
                std::sqrt(1 + 1 / count);
  }
  for (std::size_t t = 0; t < candidate.size(); ++t) {
    Series at;
    for (const Series& r : replicates) at.push_back(r[t]);
    if (distance(runs[k][t], at) > out.limit) {
      out.at = t;
      break;
    }
  }
  out.seen = smallest_seen(replicates, out.limit, rounding);
  return out;
}

void check_replicates(const Pair& pair, std::span<const Trajectory> all, Observations& out) {
  constexpr const char* kName = "B among replicates of A's stack";
  for (std::size_t i = 2; i < all.size(); ++i) require_replicate(all[0], all[i]);
  // Runs of the same bits are one run.
  std::vector<const Trajectory*> replicates;
  const auto bits = [](const Trajectory& t) {
    return t.updates ? t.updates->adapter_checksum : std::vector<std::uint64_t>();
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 1) continue;
    if (std::none_of(replicates.begin(), replicates.end(),
                     [&](const Trajectory* r) { return bits(*r) == bits(all[i]); }))
      replicates.push_back(&all[i]);
  }
  const auto refuse = [&](const std::string& why) {
    out.push_back(not_checked(Stage::kTrajectory, Step::kEvaluation, kName, why));
  };
  if (replicates.size() < kFewestReplicates)
    return refuse(cat(replicates.size(), " different replicates: ", kFewestReplicates, " are the least, ",
                      kRankReplicates, " judge by rank alone"));
  const bool same = same_stack(all[0], all[1]);
  const double scale = same ? 1.0 : rounding_scale(all[1], replicates);
  if (std::isnan(scale))
    return refuse(
        "how far they start apart is not known: fewer than 5 updates, or replicates that start alike");
  if (!same && !pair.rounding)
    return refuse("how far one pass rounds is not known: a file lacks the model's sizes or its precision");

  struct Judged {
    const char* name;
    Step step;
    bool evaluations;
    Column column;
  };
  const Judged judged[] = {
      {"held-out loss among replicates", Step::kEvaluation, true,
       [](const Trajectory& t) { return t.evals ? &t.evals->loss : nullptr; }},
      {"loss of each update among replicates", Step::kLoss, false,
       [](const Trajectory& t) { return t.updates ? &t.updates->loss : nullptr; }},
      {"gradient norm among replicates", Step::kNorm, false,
       [](const Trajectory& t) { return t.updates ? &t.updates->grad_norm : nullptr; }},
  };
  for (const Judged& j : judged) {
    const auto steps = [&](const Trajectory& t) {
      return j.evaluations ? (t.evals ? t.evals->step : std::vector<std::int64_t>())
                           : (t.updates ? t.updates->step : std::vector<std::int64_t>());
    };
    const Series* candidate = j.column(all[1]);
    if (!candidate || candidate->empty() || steps(all[1]) != steps(all[0])) {
      out.push_back(not_checked(Stage::kTrajectory, j.step, j.name, "B has not the same steps", true));
      continue;
    }
    std::vector<Series> columns;
    for (const Trajectory* r : replicates)
      if (const Series* c = j.column(*r); c && c->size() == candidate->size()) columns.push_back(*c);
    OtherRounding rounding{scale, {}};
    if (!same && j.step != Step::kNorm)
      for (std::size_t t = 0; t < candidate->size(); ++t)
        rounding.pass.push_back(pair.rounding->mean_loss(
            j.evaluations ? pair.b.n_held_out() : pair.samples_of(static_cast<std::int64_t>(t))));
    judge(j.name, j.step, steps(all[1]), *candidate, columns, rounding, out);
  }
}

}  // namespace tandem
