#include "src/compare/rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem {
namespace {

constexpr double kU = 0x1p-24;

// Small enough to sum by hand.
ModelSizes small() { return {1, 10, 20, 1, 4, 30, 2.0, 100}; }

TEST(Rounding, OfOneLayerByHand) {
  const Roundoff f32 = *roundoff_of("f32"), f64 = *roundoff_of("f64");
  const RoundingModel model(small(), f32, f64);
  // In units of u^2, sums K / 10 and results 1/3 each: projection = norm (1 + 1) + product (1 + 1/3) + head
  // norm (0.4 + 1) + rope 2/3; scores = 4 (2 projection + 0.4 + 1/3) + 4/3.
  const double projection = 2 + 4.0 / 3 + 1.4 + 2.0 / 3;
  const double scores = 4 * (2 * projection + 0.4 + 1.0 / 3) + 4.0 / 3;
  const double attention = scores + projection + (3 + 1.0 / 3) + (0.4 + 1.0 / 3);
  const double feed_forward = 2 + 2 * (4.0 / 3) + 4.0 / 3 + (2 + 1.0 / 3);
  const double layer = attention + feed_forward + 2.0 / 3;
  // float64 adds 2^-58 of that.
  EXPECT_NEAR(model.activation(0), 6 * std::sqrt(layer) * kU, 1e-9 * kU);
  EXPECT_NEAR(model.logit(), 6 * std::sqrt(layer + 2 + 4.0 / 3) * 2.0 * kU, 1e-9 * kU);
  EXPECT_DOUBLE_EQ(model.token_nll(), 2 * model.logit());
  EXPECT_DOUBLE_EQ(model.mean_loss(16), model.token_nll() / 4);
}

TEST(Rounding, IsThatOfTheCoarserStack) {
  const Roundoff f32 = *roundoff_of("f32"), f64 = *roundoff_of("f64"), bf16 = *roundoff_of("bf16"),
                 tf32 = *roundoff_of("tf32");
  const double one = RoundingModel(small(), f32, f64).gradient();
  EXPECT_NEAR(RoundingModel(small(), f32, f32).gradient(), std::sqrt(2.0) * one, 1e-6 * one);
  EXPECT_DOUBLE_EQ(RoundingModel(small(), f64, f32).gradient(), one);
  EXPECT_GT(RoundingModel(small(), bf16, f64).gradient(), 1e4 * one);
  EXPECT_GT(RoundingModel(small(), tf32, f64).gradient(), 1e2 * one);
  EXPECT_FALSE(roundoff_of("f16"));
}

TEST(Rounding, IsFollowedUntilItMayBeATenthOfAnUpdate) {
  RoundingModel model(small(), *roundoff_of("f32"), *roundoff_of("f64"));
  const std::vector<double> lr(50, 1e-3), norm(50, 1.0);
  model.follow(lr, norm);
  EXPECT_GE(model.horizon(), 2);
  EXPECT_LT(model.horizon(), 10);
  EXPECT_EQ(model.state(1), 0.0) << "both start from one adapter";
  EXPECT_DOUBLE_EQ(model.gradient(1), model.gradient());
  // The first step follows signs: 2 sqrt(delta / pi) of an update.
  EXPECT_DOUBLE_EQ(model.state(2), 2 * std::sqrt(model.gradient() / M_PI) * 1e-3);
  EXPECT_GT(model.gradient(2), 10 * model.gradient());
  EXPECT_GT(model.loss(2, 4), model.loss(1, 4));
  for (std::int64_t t = 1; t <= model.horizon(); ++t) EXPECT_LE(model.state(t), 0.1 * 1e-3);
  model.follow({}, {});
  EXPECT_EQ(model.horizon(), 0);
}

}  // namespace
}  // namespace tandem
