// Work by several threads, taken in the order of its items.
#include "src/mirror/parallel.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace tandem::mirror {
namespace {

constexpr std::size_t kItems = 50;

TEST(MirrorInOrder, TakesEveryResultOnceAndInOrder) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::size_t> taken;
    in_order(
        threads, kItems, [](std::size_t i) { return i * i; },
        [&](std::size_t i, std::size_t result) {
          EXPECT_EQ(result, i * i);
          taken.push_back(i);
        });
    ASSERT_EQ(taken.size(), kItems);
    for (std::size_t i = 0; i < kItems; ++i) EXPECT_EQ(taken[i], i);
  }
}

TEST(MirrorInOrder, ThrowsWhatTheFirstItemInOrderThrewAndTakesNothingAfterIt) {
  for (const std::size_t first : {std::size_t{0}, std::size_t{7}, kItems - 1}) {
    std::size_t n_taken = 0;
    try {
      in_order(
          4, kItems,
          [&](std::size_t i) {
            if (i >= first) throw std::runtime_error(std::to_string(i));
            return 0;
          },
          [&](std::size_t, int) { ++n_taken; });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(first));
    }
    EXPECT_EQ(n_taken, first);
  }
}

TEST(MirrorInOrder, ThrowsWhatTakingThrewAndDoesNothingForNoItems) {
  const auto compute = [](std::size_t) { return 0; };
  EXPECT_THROW(in_order(3, kItems, compute, [](std::size_t, int) { throw std::logic_error("taken"); }),
               std::logic_error);
  in_order(3, 0, compute, [](std::size_t, int) { FAIL(); });
}

}  // namespace
}  // namespace tandem::mirror
