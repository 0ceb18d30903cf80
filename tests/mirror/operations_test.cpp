// The plain operations on values that can be checked by hand.
#include "src/mirror/operations.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "src/base/error.hpp"
#include "src/mirror/differentiable.hpp"

namespace tandem::mirror {
namespace {

// A few units in the last place of numbers around 1.
constexpr double kRounding = 4e-15;

Matrix matrix(std::initializer_list<std::initializer_list<double>> values) { return Matrix(values); }

TEST(MirrorOperations, ProductTakesWeightsAsFilesHaveThem) {
  EXPECT_EQ(product(matrix({{1, 2}, {3, 4}}), matrix({{1, 0}, {0, 1}, {-1, 1}})),
            matrix({{1, 2, 1}, {3, 4, 1}}));
  EXPECT_EQ(product_bound(matrix({{1, -2}}), matrix({{-1, 1}})), matrix({{3}}));
  EXPECT_THROW(product(matrix({{1, 2}}), matrix({{1}})), Error);
}

TEST(MirrorOperations, RmsNormDividesByTheRootOfTheMeanSquare) {
  const Matrix y = rms_norm(matrix({{3, 4}, {0, 0}}), Row(matrix({{1, 2}})), 0.5);
  EXPECT_NEAR(y(0, 0), 3 / std::sqrt(13), kRounding);  // mean square 12.5
  EXPECT_NEAR(y(0, 1), 8 / std::sqrt(13), kRounding);
  EXPECT_EQ(y(1, 0), 0);
}

TEST(MirrorOperations, SwigluGatesWithSilu) {
  const Matrix y = swiglu(matrix({{0, 1, -800, 800}}), matrix({{5, 2, 1, 2}}));
  EXPECT_EQ(y(0, 0), 0);
  EXPECT_NEAR(y(0, 1), 2 / (1 + std::exp(-1)), kRounding);
  EXPECT_NEAR(y(0, 2), 0, kRounding);
  EXPECT_EQ(y(0, 3), 1600);
}

TEST(MirrorOperations, RopeTurnsPairsHalfAHeadApart) {
  const auto frequencies = rope_frequencies(4, 100, nullptr);
  EXPECT_EQ(frequencies.size(), 2u);
  EXPECT_NEAR(frequencies[1], 0.1, kRounding);
  const RopeTable table = rope_table(frequencies, 3);
  const Matrix x = matrix({{1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}});
  const Matrix y = rope(x, table);
  EXPECT_EQ(y.row(0), x.row(0));  // position 0 is not turned
  EXPECT_NEAR(y(1, 0), std::cos(1.0), kRounding);
  EXPECT_NEAR(y(1, 2), std::sin(1.0), kRounding);
  EXPECT_NEAR(y(2, 1), std::cos(0.2), kRounding);
  EXPECT_NEAR(y(2, 3), std::sin(0.2), kRounding);
  EXPECT_LE((rope(y, table, true) - x).cwiseAbs().maxCoeff(), kRounding);
}

TEST(MirrorOperations, Llama3ScalesLowFrequenciesOnly) {
  // turns = 2 pi / (2 pi) * f = f with this context
  const RopeScaling scaling{8, 0.2, 0.6, 2 * std::numbers::pi};
  const auto f = rope_frequencies(8, 16, &scaling);  // unscaled: 1, 0.5, 0.25, 0.125
  EXPECT_NEAR(f[0], 1, kRounding);
  const double k1 = (0.5 - 0.2) / 0.4, k2 = (0.25 - 0.2) / 0.4;
  EXPECT_NEAR(f[1], (1 - k1) * 0.5 / 8 + k1 * 0.5, kRounding);
  EXPECT_NEAR(f[2], (1 - k2) * 0.25 / 8 + k2 * 0.25, kRounding);
  EXPECT_NEAR(f[3], 0.125 / 8, kRounding);
}

TEST(MirrorOperations, CausalSoftmaxSeesNoLaterColumn) {
  const Matrix p = causal_softmax(matrix({{7, 1e300, 5}, {0, std::log(3), 9}, {1000, 1000, 1000}}));
  EXPECT_EQ(p.row(0), Row(matrix({{1, 0, 0}})));
  EXPECT_NEAR(p(1, 1), 0.75, kRounding);
  EXPECT_EQ(p(1, 2), 0);
  EXPECT_NEAR(p(2, 0), 1.0 / 3, kRounding);
}

TEST(MirrorOperations, QueryHeadsShareKeyValueHeadsInTheirOrder) {
  // Two tokens, 4 query heads, 2 key-value heads of width 1. Equal keys: the second token sees the mean of
  // both values.
  const Matrix q = Matrix::Ones(2, 4), k = Matrix::Ones(2, 2), v = matrix({{1, 10}, {3, 30}});
  EXPECT_EQ(attention(q, k, v, 4, 2), matrix({{1, 1, 10, 10}, {2, 2, 20, 20}}));
}

TEST(MirrorOperations, AttentionDividesScoresByTheRootOfTheHeadsWidth) {
  const Matrix q = matrix({{0, 0, 0, 0}, {1, 1, 1, 1}}), k = matrix({{0, 0, 0, 0}, {1, 1, 1, 1}});
  const Matrix v = matrix({{0, 0, 0, 0}, {1, 1, 1, 1}});
  const double expected = std::exp(2) / (1 + std::exp(2));  // scores 0 and 4 / sqrt(4)
  EXPECT_NEAR(attention(q, k, v, 1, 1)(1, 0), expected, kRounding);
}

TEST(MirrorOperations, CrossEntropyIsTheLogarithmOfTheOddsAgainst) {
  const Column nll = cross_entropy(matrix({{0, std::log(3)}, {-1000, 1000}}), {1, 0});
  EXPECT_NEAR(nll(0), std::log(4.0 / 3), kRounding);
  EXPECT_EQ(nll(1), 2000);
  EXPECT_THROW(cross_entropy(matrix({{0, 1}}), {2}), Error);
}

}  // namespace
}  // namespace tandem::mirror
