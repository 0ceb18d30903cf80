// The study's own table from a pair with known residuals.
#include "src/compare/figures.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "src/compare/compare.hpp"
#include "src/compare/view.hpp"
#include "tests/compare/synthetic.hpp"

namespace tandem {
namespace {

using support::synthetic;

// 42 signed residuals in % with mean size 0.134, largest 0.316, standard deviation 0.138 and 12 sign changes:
// runs of one sign, sizes spread about their mean as far as the standard deviation wants.
std::vector<double> study_residuals() {
  constexpr int kN = 42, kPeak = 20;
  constexpr double kMean = 0.134, kLargest = 0.316, kDeviation = 0.138;
  const auto sign = [](int i) { return (i * 13 / kN) % 2 ? -1.0 : 1.0; };
  const double others = (kN * kMean - kLargest) / (kN - 1);
  const auto made = [&](double spread) {
    std::vector<double> r;
    double middle = 0.0;
    for (int i = 0; i < kN; ++i) middle += i == kPeak ? 0.0 : std::cos(1.0 * i) / (kN - 1);
    for (int i = 0; i < kN; ++i)
      r.push_back(sign(i) * (i == kPeak ? kLargest : others + spread * (std::cos(1.0 * i) - middle)));
    return r;
  };
  double low = 0.0, high = 0.12;
  for (int k = 0; k < 100; ++k) {
    const double spread = (low + high) / 2;
    (standard_deviation(made(spread)) < kDeviation ? low : high) = spread;
  }
  return made(low);
}

// A pair whose held-out losses differ by these, at the multiples of 250 of 10,500 updates.
std::pair<Trajectory, Trajectory> pair_with(const std::vector<double>& percent) {
  Trajectory a = synthetic(), b = synthetic({.stack = "mirror", .arithmetic = "mirror", .precision = "f64"});
  for (Trajectory* t : {&a, &b}) {
    auto& e = t->evals.emplace();
    for (std::size_t i = 0; i <= percent.size(); ++i) {
      e.step.push_back(static_cast<std::int64_t>(250 * i));
      const double loss = i == 0 ? 3.672389 : 2.5314 - 0.3679 * static_cast<double>(i - 1) / 41;
      e.loss.push_back(t == &a && i > 0 ? loss * (1 + percent[i - 1] / 100) : loss);
    }
    e.rows = static_cast<std::int64_t>(e.step.size());
  }
  return {a, b};
}

TEST(Figures, OfTheStudyComeOutOfItsResiduals) {
  const auto [a, b] = pair_with(study_residuals());
  const Figures found = figures_of(Pair(a, b));
  ASSERT_TRUE(found.held_out);
  const HeldOutFigures& h = *found.held_out;
  EXPECT_EQ(h.percent.size(), 42u) << "the untrained evaluation is none of them";
  EXPECT_NEAR(h.mean_size, 0.134, 1e-9);
  EXPECT_NEAR(h.largest, 0.316, 1e-9);
  EXPECT_NEAR(h.deviation, 0.138, 1e-9);
  EXPECT_EQ(h.signs.changes, 12);
  EXPECT_EQ(h.signs.possible, 41);
  EXPECT_NEAR(h.signs.probability, 0.00575, 1e-5);
  EXPECT_GT(h.autocorrelation, 0.3);
  EXPECT_LT(h.interval.low, h.interval.mean);
  EXPECT_GT(h.interval.block, 2) << "neighbours are alike, so blocks are long";
}

TEST(Figures, TheViewSaysWhyFewSignChangesShowNothing) {
  const auto [a, b] = pair_with(study_residuals());
  const Trajectory both[] = {a, b};
  std::ostringstream out;
  write_view(compare(both, {}), {}, out);
  const std::string text = support::unwrapped(out.str());
  for (const char* part :
       {"mean size 0.134 %, largest 0.316 %", "sd 0.138 %", "12 sign changes of 41 possible",
        "lag-1 autocorrelation", "probability 0.00575 for independent values",
        "do not show that it is unbiased", "95 % interval"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Figures, OfGradientNormsNameTheWorstUpdateAndItsSamples) {
  Trajectory a = synthetic(), b = synthetic();
  for (std::size_t i = 0; i < 20; ++i)
    a.updates->grad_norm[i] = b.updates->grad_norm[i] * (1 + 0.001 * static_cast<double>(i));
  const auto found = figures_of(Pair(a, b)).gradient;
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->median, 0.0095, 1e-12);
  EXPECT_NEAR(found->q90, 0.0171, 1e-12);
  EXPECT_NEAR(found->largest, 0.019, 1e-12);
  EXPECT_EQ(found->largest_at, 20);
  EXPECT_EQ(found->sample_ids, (std::vector<std::int64_t>{4, 5, 6, 7}));
}

TEST(Figures, OfAuditsShowATrend) {
  Trajectory a = synthetic({.updates = 60, .eval_every = 20});
  auto& d = a.audits->relative_error;
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = 1e-7 * static_cast<double>(1 + i / 2);
  const Figures found = figures_of(Pair(a, synthetic()));
  ASSERT_EQ(found.audits.size(), 2u);
  EXPECT_EQ(found.audits[0].audits, 12);
  EXPECT_DOUBLE_EQ(found.audits[0].trend.tau, 1.0);
  EXPECT_LT(found.audits[0].trend.p, 1e-4);
  EXPECT_EQ(found.audits[1].trend.p, 1.0);
}

TEST(Blocks, GoFromTheLowestToTheHighest) {
  EXPECT_EQ(block_line(std::vector<double>{-1, 0, 1}, 10), "▁▅█");
  EXPECT_EQ(block_line(std::vector<double>{0, 0}, 10), "▅▅");
  EXPECT_EQ(block_line(std::vector<double>{-1, -1, 1, 1}, 2), "▁█");
  EXPECT_EQ(block_line({}, 10), "");
}

}  // namespace
}  // namespace tandem
