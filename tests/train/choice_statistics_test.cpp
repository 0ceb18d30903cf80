#include "src/train/choice_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(Wilson, IsThePublishedInterval) {
  // By the formula in 40 decimal digits (Python's decimal).
  const Interval none = wilson_interval(0, 10), half = wilson_interval(5, 10),
                 most = wilson_interval(95, 100);
  EXPECT_EQ(none.low, 0.0);
  EXPECT_NEAR(none.high, 0.2775327998628892, 1e-14);
  EXPECT_NEAR(half.low, 0.2365930905125640, 1e-14);
  EXPECT_NEAR(half.high, 0.7634069094874360, 1e-14);
  EXPECT_NEAR(most.low, 0.8882495307680809, 1e-14);
  EXPECT_NEAR(most.high, 0.9784563208456320, 1e-14);
  EXPECT_NEAR(wilson_interval(10, 10).low, 1.0 - none.high, 1e-14);
}

TEST(McNemar, IsTheExactBinomialTail) {
  const auto p = [](std::int64_t base, std::int64_t adapter) {
    Paired paired;
    paired.only_base = base, paired.only_adapter = adapter;
    return paired.p_value();
  };
  EXPECT_EQ(p(0, 0), 1.0);
  EXPECT_EQ(p(7, 7), 1.0);
  EXPECT_NEAR(p(0, 5), 2.0 / 32.0, 1e-14);
  EXPECT_NEAR(p(1, 5), 2.0 * 7.0 / 64.0, 1e-14);
  // 2 (C(20,0) + ... + C(20,5)) / 2^20 = 2 * 21700 / 1048576.
  EXPECT_NEAR(p(15, 5), 43400.0 / 1048576.0, 1e-13);
  EXPECT_EQ(p(15, 5), p(5, 15));
  EXPECT_GT(p(900, 1000), 0.01);
  EXPECT_LT(p(900, 1100), 1e-4);
}

struct Example {
  Example() {
    // Two questions of three and two options; nll by option.
    const std::vector<std::vector<float>> options = {{1, 1, 1}, {2}, {4, 0.5f, 0.5f}, {3}, {3}};
    scores.begin = {0};
    for (const auto& nll : options) {
      scores.nll.insert(scores.nll.end(), nll.begin(), nll.end());
      scores.begin.push_back(static_cast<std::int64_t>(scores.nll.size()));
    }
    set.questions = {{1, 0, 3, 0}, {2, 3, 2, 1}};
  }
  ChoiceSet set;
  Scores scores;
};

TEST(Choices, TheLeastSumOrMeanIsPreferredAndTheFirstOfEquals) {
  const Example example;
  EXPECT_EQ(preferred_options(example.set, example.scores, ChoiceRule::kSum),
            (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(preferred_options(example.set, example.scores, ChoiceRule::kPerToken),
            (std::vector<std::int64_t>{0, 0}));
}

TEST(Choices, PairedCountsAreOfQuestionsThatOneAloneAnswers) {
  const Example example;
  const std::vector<std::int64_t> base = {0, 0}, adapter = {2, 1};
  const Paired paired = compare_answers(example.set, base, adapter);
  EXPECT_EQ(paired.only_base, 1);
  EXPECT_EQ(paired.only_adapter, 1);
  EXPECT_EQ(paired.changed, 2);
  EXPECT_EQ(count_right(example.set, base), 1);
  EXPECT_EQ(count_right(example.set, adapter), 1);
}

}  // namespace
}  // namespace tandem
