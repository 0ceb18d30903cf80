#include "src/train/deal.hpp"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

TEST(Deal, GivesTheNextMicroBatchToTheLeastLoadedRank) {
  const SampleSet samples = support::make_samples({9, 2, 2, 2, 2, 8, 1}, {1, 1, 1, 1, 1, 1, 1});
  const std::vector<std::int64_t> batch = {0, 1, 2, 3, 4, 5, 6};
  std::vector<int> owner;
  deal(owner, "least_loaded", samples, batch, 1, 2);
  EXPECT_EQ(owner, (std::vector<int>{0, 1, 1, 1, 1, 1, 0}));
  deal(owner, "round_robin", samples, batch, 2, 3);
  EXPECT_EQ(owner, (std::vector<int>{0, 1, 2, 0}));
  deal(owner, "reversed", samples, batch, 2, 3);
  EXPECT_EQ(owner, (std::vector<int>{2, 1, 0, 2}));
}

TEST(Deal, LeavesRanksWithoutWorkWhereThereAreMoreRanks) {
  const SampleSet samples = support::make_samples({3, 3}, {1, 1});
  std::vector<int> owner;
  deal(owner, "least_loaded", samples, std::vector<std::int64_t>{0, 1}, 4, 5);
  EXPECT_EQ(owner, (std::vector<int>{0}));
}

}  // namespace
}  // namespace tandem
