#include "src/compare/figures.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/text.hpp"

namespace tandem {

namespace {

std::optional<HeldOutFigures> held_out(const Pair& pair) {
  if (!pair.a.t.evals || !pair.b.t.evals) return std::nullopt;
  const auto &a = pair.a.t.evals->loss, &b = pair.b.t.evals->loss;
  if (a.empty() || b.empty()) return std::nullopt;
  HeldOutFigures out;
  std::vector<double> sizes;
  for (std::size_t i = 0; i < pair.evaluations.rows.size(); ++i) {
    const auto [r, s] = pair.evaluations.rows[i];
    const double percent = 100 * (a[r] - b[s]) / b[s];
    if (pair.evaluations.steps[i] == 0 || !std::isfinite(percent)) continue;
    out.step.push_back(pair.evaluations.steps[i]);
    out.percent.push_back(percent);
    sizes.push_back(std::abs(percent));
    if (sizes.back() > out.largest) out.largest = sizes.back(), out.largest_at = out.step.back();
  }
  if (out.percent.empty()) return std::nullopt;
  out.mean_size = mean_of(sizes);
  out.deviation = standard_deviation(out.percent);
  out.last = out.percent.back();
  out.autocorrelation = lag1_autocorrelation(out.percent);
  out.signs = sign_changes(out.percent);
  out.interval = mean_interval(out.percent, 0.95);
  return out;
}

std::optional<GradientFigures> gradient(const Pair& pair) {
  if (!pair.a.t.updates || !pair.b.t.updates) return std::nullopt;
  const auto &a = *pair.a.t.updates, &b = *pair.b.t.updates;
  if (a.grad_norm.empty() || b.grad_norm.empty()) return std::nullopt;
  std::vector<double> all;
  GradientFigures out;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < pair.updates.rows.size(); ++i) {
    const auto [r, s] = pair.updates.rows[i];
    const double x = a.grad_norm[r], y = b.grad_norm[s];
    const double difference = x == y ? 0.0 : std::abs(x - y) / y;
    if (!std::isfinite(difference)) continue;
    all.push_back(difference);
    if (all.size() == 1 || difference > out.largest) out.largest = difference, worst = i;
  }
  if (all.empty()) return std::nullopt;
  out.median = quantile(all, 0.5), out.q90 = quantile(all, 0.9), out.q99 = quantile(all, 0.99);
  out.largest_at = pair.updates.steps[worst];
  const auto width = static_cast<std::size_t>(a.batch_global);
  for (std::size_t k = 0; k < width; ++k)
    if (const std::int64_t id = a.sample_ids[pair.updates.rows[worst].first * width + k]; id >= 0)
      out.sample_ids.push_back(id);
  return out;
}

void trend(const Run& run, const char* who, Figures& out) {
  if (!run.t.audits || run.t.audits->n_tensors == 0) return;
  const auto& audits = *run.t.audits;
  const auto p = static_cast<std::size_t>(audits.n_tensors);
  std::vector<double> series;
  for (std::size_t i = 0; i < audits.step.size(); ++i) {
    std::vector<double> ratios;
    for (std::size_t k = i * p;
         k < (i + 1) * p && k < audits.relative_error.size() && k < audits.bound.size(); ++k)
      if (const double ratio = audits.relative_error[k] / audits.bound[k];
          std::isfinite(ratio) && ratio > 0.0)
        ratios.push_back(ratio);
    if (!ratios.empty()) series.push_back(quantile(ratios, 0.5));
  }
  if (series.empty()) return;
  out.audits.push_back(
      {who, static_cast<std::int64_t>(series.size()), series.front(), series.back(), mann_kendall(series)});
}

double seconds_of(const Run& run) {
  double sum = 0.0;
  if (run.t.updates)
    for (const double s : run.t.updates->seconds) sum += std::isfinite(s) ? s : 0.0;
  return sum;
}

// Seconds of two runs compare only where the same machine had nothing else to do.
std::string timings(const Run& a, const Run& b) {
  for (const char* fact : {"hosts", "start", "end"})
    for (const auto& [run, who] : {std::pair(&a, "A"), std::pair(&b, "B")})
      if (run->of(fact).empty()) return cat(who, " does not say its ", fact);
  if (a.of("hosts") != b.of("hosts")) return cat("other machines: ", a.of("hosts"), " and ", b.of("hosts"));
  if (a.of("devices") != b.of("devices")) return "other devices";
  // ISO 8601 in UTC sorts as text.
  if (a.of("start") < b.of("end") && b.of("start") < a.of("end")) return "the runs overlapped in time";
  return "";
}

}  // namespace

Figures figures_of(const Pair& pair) {
  Figures out;
  out.held_out = held_out(pair);
  out.gradient = gradient(pair);
  trend(pair.a, "A", out);
  trend(pair.b, "B", out);
  out.seconds_a = seconds_of(pair.a);
  out.seconds_b = seconds_of(pair.b);
  out.timings = timings(pair.a, pair.b);
  return out;
}

}  // namespace tandem
