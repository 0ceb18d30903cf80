#include "src/train/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/data.hpp"

namespace tandem {
namespace {

TEST(Order, SpecVectors) {
  const auto path = support::data_path("vectors/spec_vectors.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  const auto vectors = support::read_json(*path)["order"];
  ASSERT_EQ(vectors.size(), 6u);
  for (const auto& row : vectors)
    EXPECT_EQ(epoch_order(row["seed"].get<std::uint64_t>(), row["epoch"], row["n"]),
              row["order"].get<std::vector<std::int64_t>>());
}

TEST(Order, IsThatOfTheSpecificationsCheckValues) {
  EXPECT_EQ(epoch_order(1, 0, 8), (std::vector<std::int64_t>{2, 1, 7, 4, 0, 3, 6, 5}));
}

TEST(Order, EveryEpochHoldsEverySampleOnceAndItsLastBatchMayBeShort) {
  BatchOrder order(5, 23, 8);
  EXPECT_EQ(order.updates_per_epoch(), 3);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t t = 1; t <= 6; ++t) {
    const auto batch = order.batch(t);
    EXPECT_EQ(batch.size(), t % 3 == 0 ? 7u : 8u);
    auto& epoch = epochs[static_cast<std::size_t>((t - 1) / 3)];
    epoch.insert(epoch.end(), batch.begin(), batch.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    std::vector<std::int64_t> all(23);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(epoch, all);
  }
}

TEST(Order, UpdatesMayBeAskedForInAnyOrder) {
  BatchOrder forward(5, 23, 8), jump(5, 23, 8);
  std::vector<std::int64_t> want;
  for (std::int64_t t = 1; t <= 8; ++t) want.assign(forward.batch(t).begin(), forward.batch(t).end());
  const auto got = jump.batch(8);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
}

TEST(Order, FewerSamplesThanTheBatchGiveOneShortUpdateAnEpoch) {
  BatchOrder order(0, 3, 8);
  EXPECT_EQ(order.updates_per_epoch(), 1);
  EXPECT_EQ(order.batch(1).size(), 3u);
}

}  // namespace
}  // namespace tandem
