#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"

namespace tandem {
namespace {

using mpi_test::world;

// What agree() throws on this rank, as one line; "" if nothing.
template <class Work>
std::string thrown_by(Work&& work) {
  try {
    agree(world(), work);
  } catch (const AgreedError& error) {
    return cat("kind ", error.exit_code(), ", rank ", error.rank(), ": ", error.what());
  }
  return "";
}

TEST(Agree, ReturnsEachRanksOwnResultWhereNoneFails) {
  EXPECT_EQ(agree(world(), [] { return world().rank(); }), world().rank());
  EXPECT_EQ(thrown_by([] {}), "");
  const auto moved = agree(world(), [] { return std::make_unique<int>(7); });
  EXPECT_EQ(*moved, 7);
}

TEST(Agree, AFailureOfOneRankIsThrownByAll) {
  for (int failing = 0; failing < world().size(); ++failing) {
    EXPECT_EQ(thrown_by([&] {
                if (world().rank() == failing)
                  throw Error(ErrorKind::kInput, cat("rank ", failing, " read\nnonsense"));
              }),
              cat("kind 3, rank ", failing, ": rank ", failing, " read nonsense"));
  }
  EXPECT_EQ(world().all_reduce_sum(std::uint64_t{1}), static_cast<std::uint64_t>(world().size()))
      << "the ranks are still in step";
}

TEST(Agree, TheLowestFailingRankSpeaks) {
  const int first = world().size() / 2;
  EXPECT_EQ(thrown_by([&] {
              if (world().rank() >= first)
                throw Error(ErrorKind::kDevice, cat("text of rank ", world().rank()));
            }),
            cat("kind 4, rank ", first, ": text of rank ", first));
}

TEST(Agree, KnowsEveryTypeOfException) {
  const int last = world().size() - 1;
  const auto on_last = [&](auto exception) {
    return thrown_by([&] {
      if (world().rank() == last) throw exception;
    });
  };
  EXPECT_EQ(on_last(std::runtime_error("text")), cat("kind 1, rank ", last, ": text"));
  EXPECT_EQ(on_last(std::bad_alloc()), cat("kind 4, rank ", last, ": out of memory"));
  EXPECT_EQ(on_last(7), cat("kind 1, rank ", last, ": an exception of unknown type"));
  EXPECT_EQ(on_last(Error(ErrorKind::kUsage, "")), cat("kind 2, rank ", last, ": "));
}

TEST(Agree, AnInnerAgreementKeepsTheRankThatFailedFirst) {
  const int last = world().size() - 1;
  EXPECT_EQ(thrown_by([&] {
              agree(world(), [&] {
                if (world().rank() == last) throw Error(ErrorKind::kInput, "inner");
              });
            }),
            cat("kind 3, rank ", last, ": inner"));
}

TEST(Agree, DoesNotAskRanksThatCannotBeReached) {
  EXPECT_THROW(agree(world(), [] { throw CommunicationError("the network is gone"); }), CommunicationError);
}

TEST(RequireEqual, PassesEqualValuesAndNamesTheRanksThatDiffer) {
  require_equal(world(), "the data's digest", "a1b2");
  require_equal(world(), "the adapter's checksum", std::uint64_t{0xA1B2});
  if (world().size() == 1) return;
  const int odd = world().size() - 1;
  const std::string others = odd == 1 ? "rank 0" : cat("ranks 0-", odd - 1);
  try {
    require_equal(world(), "the data's digest", world().rank() == odd ? "ffff" : "a1b2", ErrorKind::kInput);
    FAIL() << "differing digests passed";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(error.rank(), odd);
    EXPECT_EQ(error.what(),
              cat("the data's digest differs between ranks: ", others, ": a1b2; rank ", odd, ": ffff"));
  }
  try {
    require_equal(world(), "the adapter's checksum", std::uint64_t{world().rank() == odd ? 0xFFu : 0xA1u});
    FAIL() << "differing checksums passed";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_EQ(error.what(),
              cat("the adapter's checksum differs between ranks: ", others, ": a1; rank ", odd, ": ff"));
  }
}

}  // namespace
}  // namespace tandem
