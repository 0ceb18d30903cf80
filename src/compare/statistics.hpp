// The statistics that figures and verdicts of a comparison rest on; README.md has the reasons.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// NaN where there are no values.
double mean_of(std::span<const double> x);
// sqrt(sum (x - mean)^2 / (n - 1)); NaN below two values.
double standard_deviation(std::span<const double> x);
// Linear between order statistics: position q (n - 1) (Hyndman & Fan 1996, type 7). x unsorted, without NaN.
double quantile(std::span<const double> x, double q);

// sum_t (x_t - m)(x_{t+1} - m) / sum_t (x_t - m)^2 (Box & Jenkins 1976); NaN below three values or without
// any variation.
double lag1_autocorrelation(std::span<const double> x);

// How often neighbours differ in sign, zeros left out.
struct SignChanges {
  std::int64_t changes = 0, possible = 0;
  // P(at most so many | values independent and symmetric about zero): binomial(possible, 1/2).
  double probability = 1.0;
};
SignChanges sign_changes(std::span<const double> x);

// Interval of the mean of a series whose neighbours are correlated: moving-block bootstrap (Künsch 1989, Liu
// & Singh 1992). Blocks are drawn by a fixed seed, so a series has one interval.
struct MeanInterval {
  double mean = 0.0, low = 0.0, high = 0.0;
  std::int64_t block = 0;  // length
};
// level: 0.95. NaN ends below eight values, where blocks say nothing.
MeanInterval mean_interval(std::span<const double> x, double level);

// Trend of a series (Mann 1945, Kendall 1975), ties taken into account, continuity corrected, two-sided.
struct Trend {
  double tau = 0.0;  // S / (n (n - 1) / 2): -1 to 1
  double p = 1.0;    // of independent values in any order; 1 below four values
};
Trend mann_kendall(std::span<const double> x);

// x with P(|T| > x) = p for Student's t.
double student_two_sided(double degrees, double p);

}  // namespace tandem
