#include "comm/exact_reduction.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <vector>

#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"
#include "tests/support/faulty_communicator.hpp"

namespace tandem {
namespace {

using mpi_test::world;
using support::Fault;

constexpr std::int64_t kN = 20'011;
constexpr int kMicroBatches = 7;

struct Sum {
  explicit Sum(std::int64_t size = kN)
      : limbs(static_cast<std::size_t>(ExactSumView::n_limbs(size))), size_(size) {}
  ExactSumView view() { return {limbs.data(), size_}; }
  std::vector<std::int64_t> limbs;

 private:
  std::int64_t size_;
};

std::vector<float> gradient(int micro_batch) {
  const RandomStream random(static_cast<std::uint64_t>(micro_batch), "gradient");
  std::vector<float> values(kN);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(
        std::ldexp(2 * random.unit(2 * i) - 1, -static_cast<int>(random.draw(2 * i + 1) % 50)));
  }
  return values;
}

std::string name_of(std::int64_t i) { return cat("tensor t, element ", i); }

// The sum of this rank's micro-batches, dealt in some order.
Sum dealt(int shift) {
  Sum sum;
  for (int j = 0; j < kMicroBatches; ++j) {
    if ((j + shift) % world().size() != world().rank()) continue;
    EXPECT_EQ(exact_sum_add(sum.view(), 0, gradient(j), 2), -1);
  }
  return sum;
}

std::string thrown_by(Communicator& comm, Sum& sum) {
  try {
    all_reduce_exact(comm, sum.view(), "update 412", name_of, 2);
  } catch (const AgreedError& error) {
    return cat("kind ", error.exit_code(), ", rank ", error.rank(), ": ", error.what());
  }
  return "";
}

TEST(ExactReduction, BitsAndChecksumAreThoseOfOneRank) {
  Sum alone;
  for (int j = 0; j < kMicroBatches; ++j) ASSERT_EQ(exact_sum_add(alone.view(), 0, gradient(j), 1), -1);
  SingleCommunicator single;
  const std::uint64_t checksum = all_reduce_exact(single, alone.view(), "update 1", name_of, 1);
  for (int shift = 0; shift < world().size(); ++shift) {
    Sum sum = dealt(shift);
    EXPECT_EQ(all_reduce_exact(world(), sum.view(), "update 1", name_of, 2), checksum);
    EXPECT_TRUE(sum.limbs == alone.limbs);
    EXPECT_EQ(checksum, exact_sum_checksum(sum.view(), 1))
        << "the recorded checksum is that of the carried limbs";
  }
}

TEST(ExactReduction, AFlippedLostOrDoubledLimbIsCaughtOnEveryRank) {
  for (const auto when : {Fault::When::kBefore, Fault::When::kAfter}) {
    for (const auto kind : {Fault::Kind::kFlip, Fault::Kind::kLose, Fault::Kind::kDouble}) {
      for (int rank = 0; rank < world().size(); ++rank) {
        for (const std::size_t limb : {0ul, 12'345ul, 2ul * kN - 1}) {
          Sum sum = dealt(0);
          // A limb of 0 could neither be lost nor doubled.
          sum.view().high()[limb % kN] = 4097;
          sum.view().low()[limb % kN] = 4099;
          support::FaultyCommunicator faulty(world(),
                                             {kind, when, rank, 0, limb, static_cast<int>(limb % 64)});
          const std::string text = thrown_by(faulty, sum);
          const bool all = when == Fault::When::kBefore;
          const std::string ranks = !all || world().size() == 1 ? cat("rank ", all ? 0 : rank)
                                                                : cat("ranks 0-", world().size() - 1);
          const std::string start = cat("kind 4, rank ", all ? 0 : rank, ": update 412: the all-reduce of ",
                                        kN, " elements does not add up on ", ranks, " (checksum ");
          EXPECT_EQ(text.substr(0, start.size()), start);
        }
      }
    }
  }
}

TEST(ExactReduction, AFaultIsCaughtInItsOwnUpdate) {
  support::FaultyCommunicator faulty(
      world(), {Fault::Kind::kFlip, Fault::When::kBefore, world().size() - 1, 1, 17, 63});
  for (const bool fails : {false, true, false}) {
    Sum sum = dealt(0);
    EXPECT_EQ(thrown_by(faulty, sum).empty(), !fails);
  }
}

TEST(ExactReduction, AnElementTooLargeForTheSumIsNamedOnEveryRank) {
  Sum sum;
  const int last = world().size() - 1;
  if (world().rank() == last) sum.view().high()[777] = -(std::int64_t{1} << 62) / world().size();
  EXPECT_EQ(thrown_by(world(), sum),
            cat("kind 1, rank ", last, ": update 412: the sum of tensor t, element 777 on rank ", last,
                " is too large to be added over ", world().size(), " ranks"));
}

// Each number on one rank, 0 on the others, as observations are gathered.
TEST(CheckedSum, GathersAndCatchesAChangeOnEveryRank) {
  const auto gathered = [](Communicator& comm) {
    std::vector<std::int64_t> values(1000, 0);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (static_cast<int>(i) % world().size() == world().rank())
        values[i] = static_cast<std::int64_t>(RandomStream(3, "bits").draw(i));
    all_reduce_checked(comm, values, "the probe");
    return values;
  };
  const std::vector<std::int64_t> values = gathered(world());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<std::int64_t>(RandomStream(3, "bits").draw(i)));
  for (const auto when : {Fault::When::kBefore, Fault::When::kAfter})
    for (const int bit : {0, 63}) {
      support::FaultyCommunicator faulty(world(), {Fault::Kind::kFlip, when, world().size() - 1, 0, 17, bit});
      EXPECT_THROW(gathered(faulty), AgreedError);
    }
}

// Not a condition of speed on any machine: the numbers are for the reader (--gtest_output=xml, or the printed
// line).
TEST(ExactReduction, OfAnAdapterIsMeasured) {
  constexpr std::int64_t kAdapter = 10'092'544;  // Qwen3-0.6B, rank 16, all seven projections
  Sum sum(kAdapter);
  const std::vector<float> values(kAdapter, 0.001f * static_cast<float>(world().rank() + 1));
  using Clock = std::chrono::steady_clock;
  double add_ms = 1e9, reduce_ms = 1e9, checked_ms = 1e9;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  for (int repeat = 0; repeat < 3; ++repeat) {
    exact_sum_clear(sum.view(), 1);
    world().barrier();
    auto start = Clock::now();
    ASSERT_EQ(exact_sum_add(sum.view(), 0, values, 1), -1);
    add_ms = std::min(add_ms, ms_since(start));
    world().barrier();
    start = Clock::now();
    all_reduce_exact(world(), sum.view(), "update 1", name_of, 1);
    checked_ms = std::min(checked_ms, ms_since(start));
    start = Clock::now();
    world().all_reduce_sum(sum.view().all());
    reduce_ms = std::min(reduce_ms, ms_since(start));
  }
  if (world().rank() == 0) {
    std::printf(
        "%lld elements, %d ranks, 1 thread: add %.1f ms, all-reduce %.1f ms, checked and carried %.1f ms\n",
        static_cast<long long>(kAdapter), world().size(), add_ms, reduce_ms, checked_ms);
  }
}

}  // namespace
}  // namespace tandem
