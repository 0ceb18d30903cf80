#include "src/compare/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/base/random.hpp"

namespace tandem {
namespace {

using Values = std::vector<double>;

TEST(Statistics, MeanAndDeviationOfAKnownSample) {
  const Values x = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(mean_of(x), 5.0);
  EXPECT_DOUBLE_EQ(standard_deviation(x), std::sqrt(32.0 / 7));
  EXPECT_TRUE(std::isnan(mean_of({})));
  EXPECT_TRUE(std::isnan(standard_deviation(Values{1})));
}

// numpy.quantile's values.
TEST(Statistics, QuantilesAreLinearBetweenOrderStatistics) {
  const Values x = {3, 1, 4, 1, 5, 9, 2, 6};
  EXPECT_DOUBLE_EQ(quantile(x, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.5), 3.5);
  EXPECT_DOUBLE_EQ(quantile(x, 0.9), 6.9);
  EXPECT_DOUBLE_EQ(quantile(x, 1.0), 9.0);
  EXPECT_DOUBLE_EQ(quantile(Values{7}, 0.3), 7.0);
}

TEST(Statistics, AutocorrelationByHand) {
  // Mean 3; products -1*-2... : (-2)(-1) + (-1)(0) + 0*1 + 1*2 = 4 of 10.
  EXPECT_DOUBLE_EQ(lag1_autocorrelation(Values{1, 2, 3, 4, 5}), 0.4);
  EXPECT_NEAR(lag1_autocorrelation(Values{1, -1, 1, -1, 1, -1}), -5.0 / 6, 1e-15);
  EXPECT_TRUE(std::isnan(lag1_autocorrelation(Values{2, 2, 2, 2})));
}

// What the study took for a sign of no bias: 12 sign changes of 41 that were possible.
TEST(Statistics, TwelveSignChangesOfFortyOneAreFew) {
  Values x;
  for (int i = 0; i < 42; ++i) x.push_back((i * 13 / 42) % 2 ? -1.0 : 1.0);
  const SignChanges found = sign_changes(x);
  EXPECT_EQ(found.changes, 12);
  EXPECT_EQ(found.possible, 41);
  // sum of binomial(41, k) for k = 0 ... 12, over 2^41
  EXPECT_NEAR(found.probability, 12652948624.0 / 2199023255552.0, 1e-12);
}

TEST(Statistics, ZerosHaveNoSign) {
  const SignChanges found = sign_changes(Values{1, 0, -1, 0, 0, -2, NAN, 3});
  EXPECT_EQ(found.changes, 2);
  EXPECT_EQ(found.possible, 3);
  EXPECT_EQ(sign_changes({}).possible, 0);
}

// Kendall's S of 1 ... n is n (n-1) / 2; Var = n (n-1) (2n+5) / 18. n = 10: z = 44 / sqrt(125) = 3.9355.
TEST(Statistics, MannKendallOfAKnownTrend) {
  Values x;
  for (int i = 0; i < 10; ++i) x.push_back(i);
  const Trend up = mann_kendall(x);
  EXPECT_DOUBLE_EQ(up.tau, 1.0);
  EXPECT_NEAR(up.p, std::erfc(44 / std::sqrt(125.0) / std::sqrt(2.0)), 1e-15);
  const Trend none = mann_kendall(Values{1, 2, 1, 2, 1, 2, 1, 2});
  EXPECT_GT(none.p, 0.3);
  // Ties: two groups of three take 2 * 3 * 2 * 11 / 18 from the variance 6 * 5 * 17 / 18; S = 9.
  EXPECT_NEAR(mann_kendall(Values{1, 1, 1, 2, 2, 2}).p,
              std::erfc(8 / std::sqrt((510.0 - 132) / 18) / std::sqrt(2.0)), 1e-15);
  EXPECT_EQ(mann_kendall(Values{1, 2, 3}).p, 1.0);
}

// Tables of Student's t, two-sided.
TEST(Statistics, StudentsQuantiles) {
  EXPECT_NEAR(student_two_sided(3, 0.01), 5.841, 5e-4);
  EXPECT_NEAR(student_two_sided(19, 0.05), 2.093, 5e-4);
}

// A stationary series with lag-1 autocorrelation r, mean 0, variance 1; uniform steps will do.
Values autoregressive(std::size_t n, double r, std::uint64_t seed) {
  const RandomStream random(seed, "autoregressive");
  Values x;
  double value = 0.0;
  std::uint64_t draws = 0;
  for (std::size_t t = 0; t < n + 200; ++t) {
    value = r * value + std::sqrt(1 - r * r) * std::sqrt(12.0) * (random.unit(draws++) - 0.5);
    if (t >= 200) x.push_back(value);
  }
  return x;
}

double coverage(std::size_t n, double r, int series) {
  int inside = 0;
  for (int k = 0; k < series; ++k) {
    const MeanInterval interval = mean_interval(autoregressive(n, r, static_cast<std::uint64_t>(k)), 0.95);
    inside += interval.low <= 0.0 && 0.0 <= interval.high;
  }
  return static_cast<double>(inside) / series;
}

// Measured with 2,000 series (src/compare/README.md): 0.95, 0.92 and 0.87. The seeds are fixed, so nothing
// here depends on chance.
TEST(Statistics, IntervalsOfMeansCoverAboutAsOftenAsTheySay) {
  EXPECT_NEAR(coverage(42, 0.0, 200), 0.95, 0.04);
  EXPECT_NEAR(coverage(42, 0.5, 200), 0.92, 0.05);
  EXPECT_NEAR(coverage(42, 0.7, 200), 0.87, 0.06);
}

TEST(Statistics, IntervalsOfMeansAreTheSameEveryTime) {
  const Values x = autoregressive(42, 0.6, 3);
  const MeanInterval a = mean_interval(x, 0.95), b = mean_interval(x, 0.95);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, a.mean);
  EXPECT_GT(a.high, a.mean);
  EXPECT_GT(a.block, 1);
  EXPECT_TRUE(std::isnan(mean_interval(Values{1, 2, 3}, 0.95).low));
  const MeanInterval flat = mean_interval(Values(20, 0.5), 0.95);
  EXPECT_DOUBLE_EQ(flat.low, 0.5);
  EXPECT_DOUBLE_EQ(flat.high, 0.5);
}

}  // namespace
}  // namespace tandem
