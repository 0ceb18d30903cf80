#include "src/compare/statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/statistics/univariate_statistics.hpp>
#include <cmath>
#include <limits>

#include "src/base/random.hpp"

namespace tandem {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The block length that is best for the bootstrap's variance of an AR(1) series' mean: the moving-block
// bootstrap estimates it as Bartlett's kernel does (Künsch 1989), whose plug-in bandwidth is Andrews' (1991,
// equations 6.2 and 6.4): 1.1447 (4 r^2 / (1 - r^2)^2 n)^(1/3).
std::int64_t block_length(double r, std::size_t n) {
  const double count = static_cast<double>(n);
  if (std::isnan(r)) r = 0.0;
  // Short series show too little of it: by (1 + 3 r) / n (Kendall 1954).
  r = std::clamp(r + (1 + 3 * r) / count, -0.97, 0.97);
  const double alpha = 4 * r * r / ((1 - r * r) * (1 - r * r));
  const double best = std::ceil(1.1447 * std::cbrt(alpha * count));
  return static_cast<std::int64_t>(std::clamp(best, 1.0, std::floor(count / 4)));
}

}  // namespace

double mean_of(std::span<const double> x) {
  return x.empty() ? kNone : boost::math::statistics::mean(x.begin(), x.end());
}

double standard_deviation(std::span<const double> x) {
  return x.size() < 2 ? kNone : std::sqrt(boost::math::statistics::sample_variance(x.begin(), x.end()));
}

double quantile(std::span<const double> x, double q) {
  if (x.empty()) return kNone;
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double lag1_autocorrelation(std::span<const double> x) {
  if (x.size() < 3) return kNone;
  const double mean = mean_of(x);
  double products = 0.0, squares = 0.0;
  for (std::size_t t = 0; t < x.size(); ++t) {
    squares += (x[t] - mean) * (x[t] - mean);
    if (t + 1 < x.size()) products += (x[t] - mean) * (x[t + 1] - mean);
  }
  return squares > 0.0 ? products / squares : kNone;
}

SignChanges sign_changes(std::span<const double> x) {
  SignChanges found;
  double last = 0.0;
  for (const double v : x) {
    if (v == 0.0 || std::isnan(v)) continue;
    if (last != 0.0) {
      ++found.possible;
      found.changes += (v > 0.0) != (last > 0.0);
    }
    last = v;
  }
  if (found.possible > 0)
    found.probability = boost::math::cdf(boost::math::binomial(static_cast<double>(found.possible), 0.5),
                                         static_cast<double>(found.changes));
  return found;
}

MeanInterval mean_interval(std::span<const double> x, double level) {
  constexpr std::int64_t kResamples = 4999;
  const auto n = static_cast<std::int64_t>(x.size());
  MeanInterval out{mean_of(x), kNone, kNone, 0};
  if (n < 8) return out;
  out.block = block_length(lag1_autocorrelation(x), x.size());
  const std::int64_t l = out.block, starts = n - l + 1, blocks = (n + l - 1) / l;
  // The first v values of every block are summed once, so that a resample costs `blocks` additions.
  std::vector<double> before(static_cast<std::size_t>(n) + 1, 0.0);
  for (std::size_t t = 0; t < x.size(); ++t) before[t + 1] = before[t] + x[t];
  const auto sum = [&](std::int64_t begin, std::int64_t count) {
    return before[static_cast<std::size_t>(begin + count)] - before[static_cast<std::size_t>(begin)];
  };
  // Resamples centre on the mean over blocks, in which the ends of the series weigh less.
  double centre = 0.0;
  for (std::int64_t s = 0; s < starts; ++s) centre += sum(s, l) / static_cast<double>(l);
  centre /= static_cast<double>(starts);

  const RandomStream random(0, "compare.moving_blocks");
  std::vector<double> means;
  std::uint64_t draws = 0;
  for (std::int64_t k = 0; k < kResamples; ++k) {
    double total = 0.0;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto start = static_cast<std::int64_t>(random.unit(draws++) * static_cast<double>(starts));
      total += sum(start, std::min(l, n - b * l));
    }
    means.push_back(total / static_cast<double>(n));
  }
  // n / l blocks are few: their spread is known with that many degrees of freedom less one, so the ends lie
  // as much further out as Student's t does than the normal; and what n values have lost to their own mean is
  // given back by sqrt(n / (n - l)).
  const double degrees = std::max(1.0, static_cast<double>(n) / static_cast<double>(l) - 1);
  const double beyond = 1 - level;
  const double normal = boost::math::quantile(boost::math::normal(), 1 - beyond / 2);
  const double wider = student_two_sided(degrees, beyond) / normal *
                       std::sqrt(static_cast<double>(n) / static_cast<double>(n - l));
  // Basic interval: as far as resamples lie from their centre, so far may the mean lie from the truth.
  out.low = out.mean - wider * (quantile(means, 1 - beyond / 2) - centre);
  out.high = out.mean - wider * (quantile(means, beyond / 2) - centre);
  return out;
}

Trend mann_kendall(std::span<const double> x) {
  const std::size_t n = x.size();
  if (n < 4) return {};
  double s = 0.0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j) s += (x[j] > x[i]) - (x[j] < x[i]);
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(n);
  double variance = count * (count - 1) * (2 * count + 5);
  for (std::size_t i = 0; i < n;) {
    std::size_t end = i;
    while (end < n && sorted[end] == sorted[i]) ++end;
    const auto ties = static_cast<double>(end - i);
    variance -= ties * (ties - 1) * (2 * ties + 5);
    i = end;
  }
  variance /= 18;
  Trend out;
  out.tau = s / (count * (count - 1) / 2);
  if (variance <= 0.0 || s == 0.0) return out;
  const double z = (std::abs(s) - 1) / std::sqrt(variance);
  out.p = std::min(1.0, 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), z)));
  return out;
}

double student_two_sided(double degrees, double p) {
  return boost::math::quantile(boost::math::complement(boost::math::students_t(degrees), p / 2));
}

}  // namespace tandem
