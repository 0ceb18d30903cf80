#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/peak_memory.hpp"
#include "comm/topology.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"

namespace tandem {
namespace {

using mpi_test::world;

std::int64_t value_of_rank(int rank, std::size_t i) {
  return static_cast<std::int64_t>(RandomStream(static_cast<std::uint64_t>(rank), "value").draw(i));
}

// Sizes around the chunk of 2^17 numbers, and the adapter of Qwen3-0.6B at rank 16: 10,092,544 elements.
TEST(MpiCommunicator, AllReduceIsTheWrappingSumOverRanks) {
  for (const std::size_t n : {0ul, 1ul, 3ul, (1ul << 17) - 1, 1ul << 17, (1ul << 17) + 1, 10'092'544ul}) {
    std::vector<std::int64_t> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = value_of_rank(world().rank(), i);
    world().all_reduce_sum(values);
    std::size_t n_wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t expected = 0;
      for (int rank = 0; rank < world().size(); ++rank) {
        expected += static_cast<std::uint64_t>(value_of_rank(rank, i));
      }
      n_wrong += static_cast<std::uint64_t>(values[i]) != expected ? 1 : 0;
    }
    EXPECT_EQ(n_wrong, 0u) << n;
  }
  EXPECT_EQ(world().all_reduce_sum(std::uint64_t{1}), static_cast<std::uint64_t>(world().size()));
}

TEST(MpiCommunicator, GathersComeInRankOrder) {
  struct Pair {
    std::int64_t rank;
    double half;
  };
  const std::vector<Pair> all = world().all_gather_value(Pair{world().rank(), world().rank() / 2.0});
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
  for (int rank = 0; rank < world().size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(all[static_cast<std::size_t>(rank)].half, rank / 2.0);
  }
}

TEST(MpiCommunicator, GathersTextsOfAnyLengthWithAnyBytes) {
  const auto text_of = [](int rank) {
    if (rank == 1) return std::string();
    return std::string(static_cast<std::size_t>(rank) * 100'000, 'x') + '\0' + '\n' + std::to_string(rank);
  };
  const std::vector<std::string> all = world().all_gather_text(text_of(world().rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
  for (int rank = 0; rank < world().size(); ++rank)
    EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == text_of(rank));
  for (const std::string& text : world().all_gather_text("")) EXPECT_EQ(text, "");
}

TEST(MpiCommunicator, BroadcastsFromEveryRank) {
  for (int root = 0; root < world().size(); ++root) {
    std::vector<std::int64_t> values(1000, world().rank());
    world().broadcast(std::as_writable_bytes(std::span(values)), root);
    EXPECT_EQ(values, std::vector<std::int64_t>(1000, root));
    world().broadcast({}, root);
  }
}

TEST(MpiCommunicator, BarrierWaitsForTheLastRank) {
  const auto last = world().size() - 1;
  world().barrier();
  if (world().rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  world().barrier();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  if (world().rank() != last) {
    EXPECT_GT(waited.count(), 0.02);
  }
}

TEST(MpiCommunicator, NodeHoldsTheRanksOfThisMachine) {
  const std::unique_ptr<Communicator> node = world().node();
  EXPECT_EQ(node->size(), world().size());
  EXPECT_EQ(node->rank(), world().rank());
  EXPECT_EQ(node->all_reduce_sum(std::uint64_t{2}), 2 * static_cast<std::uint64_t>(world().size()));
}

TEST(Placement, RanksOfANodeDivideItsCpusOrShareThem) {
  const Placement placement = place(world(), 0);
  EXPECT_EQ(placement.local_size, world().size());
  const std::vector<Cpu> allowed = allowed_cpus();
  std::vector<int> ids;
  for (const int cpu : placement.share.cpus) {
    EXPECT_TRUE(std::any_of(allowed.begin(), allowed.end(), [&](const Cpu& a) { return a.id == cpu; }))
        << cpu;
  }
  const auto total = world().all_reduce_sum(static_cast<std::uint64_t>(placement.share.cpus.size()));
  const auto n = static_cast<std::uint64_t>(world().size());
  if (allowed.size() >= n) {
    EXPECT_EQ(total, allowed.size());
    EXPECT_FALSE(placement.share.oversubscribed);
  } else {
    EXPECT_EQ(total, n * allowed.size());
    EXPECT_TRUE(placement.share.oversubscribed);
    EXPECT_EQ(placement.share.threads, 1);
  }
}

TEST(Placement, ThreadsAskedForOnOneRankAreItsOwn) {
  const Placement placement = place(world(), world().rank() == 0 ? 3 : 1);
  EXPECT_EQ(placement.share.threads, world().rank() == 0 ? 3 : 1);
}

TEST(PeakMemory, IsTheLargestRankAndTheSumOfANode) {
  constexpr std::int64_t kBlock = std::int64_t{96} << 20;
  const std::int64_t before = peak_memory_bytes();
  if (world().rank() == world().size() - 1) {
    std::vector<char> block(kBlock, 1);
    EXPECT_EQ(block[kBlock / 2], 1);
  }
  const auto node = world().node();
  const PeakMemory peak = gather_peak_memory(world(), *node);
  const std::int64_t mine = peak_memory_bytes();
  std::int64_t sum = 0, largest = 0;
  for (const std::int64_t bytes : world().all_gather_value(mine)) {
    sum += bytes;
    largest = std::max(largest, bytes);
  }
  constexpr std::int64_t kSlack = std::int64_t{4} << 20;  // what the ranks allocate between two readings
  EXPECT_NEAR(static_cast<double>(peak.rank_bytes), static_cast<double>(largest),
              static_cast<double>(kSlack));
  EXPECT_NEAR(static_cast<double>(peak.node_bytes), static_cast<double>(sum),
              static_cast<double>(kSlack) * world().size());
  EXPECT_GE(mine, before);
}

}  // namespace
}  // namespace tandem
