#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <array>

#include "comm/exact_reduction.hpp"
#include "comm/peak_memory.hpp"
#include "tests/support/faulty_communicator.hpp"

namespace tandem {
namespace {

TEST(SingleCommunicator, GivesBackWhatOneRankBrings) {
  SingleCommunicator comm;
  std::array<std::int64_t, 2> values = {3, -4};
  comm.all_reduce_sum(values);
  EXPECT_EQ(values, (std::array<std::int64_t, 2>{3, -4}));
  EXPECT_EQ(comm.all_reduce_sum(std::uint64_t{9}), 9u);
  EXPECT_EQ(comm.all_gather_value(7), std::vector<int>{7});
  EXPECT_EQ(comm.all_gather_text("abc"), std::vector<std::string>{"abc"});
  comm.broadcast(std::as_writable_bytes(std::span(values)), 0);
  EXPECT_THROW(comm.broadcast({}, 1), Error);
  comm.barrier();
  EXPECT_EQ(comm.node()->size(), 1);
}

TEST(SingleCommunicator, AgreesWithItself) {
  SingleCommunicator comm;
  EXPECT_EQ(agree(comm, [] { return 5; }), 5);
  EXPECT_THROW(agree(comm, [] { throw Error(ErrorKind::kInput, "text"); }), AgreedError);
  require_equal(comm, "x", std::uint64_t{1});
}

TEST(SingleCommunicator, SeesAPlantedFaultToo) {
  SingleCommunicator single;
  support::FaultyCommunicator faulty(single, {.bit = 40});
  std::vector<std::int64_t> limbs(20);
  EXPECT_THROW(all_reduce_exact(
                   faulty, {limbs.data(), 10}, "update 1", [](std::int64_t) { return ""; }, 1),
               AgreedError);
}

TEST(RangesText, JoinsNeighbours) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text(std::vector<int>{4}), "4");
  EXPECT_EQ(ranges_text(std::vector<int>{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(PeakMemory, GrowsWithWhatIsTouchedAndNeverShrinks) {
  const std::int64_t before = peak_memory_bytes();
  EXPECT_GT(before, 1 << 20);
  constexpr std::size_t kBlock = std::size_t{256} << 20;
  { std::vector<char> block(kBlock, 1); }
  const std::int64_t after = peak_memory_bytes();
  EXPECT_GT(after, static_cast<std::int64_t>(kBlock));
  EXPECT_GE(after, before);
}

}  // namespace
}  // namespace tandem
