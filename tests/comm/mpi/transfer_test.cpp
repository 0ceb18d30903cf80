#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"

namespace tandem {
namespace {

using mpi_test::FailingCall;
using mpi_test::world;

std::byte value(int rank, std::size_t i) {
  return std::byte{static_cast<unsigned char>(rank * 31 + i % 251)};
}

std::size_t n_of_rank(const std::vector<std::byte>& bytes, int rank) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) n += bytes[i] == value(rank, i);
  return n;
}

// Every pair, of nothing, one byte, and more than MPI sends without being asked for.
TEST(Transfer, ReplacesTheReceiversBytesAndNobodyElses) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3'000'001}})
    for (int from = 0; from < world().size(); ++from)
      for (int to = 0; to < world().size(); ++to) {
        std::vector<std::byte> bytes(n);
        for (std::size_t i = 0; i < n; ++i) bytes[i] = value(world().rank(), i);
        world().transfer(bytes, from, to);
        const int holds = world().rank() == to ? from : world().rank();
        EXPECT_EQ(n_of_rank(bytes, holds), n) << n << " bytes from " << from << " to " << to;
      }
}

TEST(Transfer, ManyKeepTheirOrder) {
  const int last = world().size() - 1;
  for (int i = 0; i < 100; ++i) {
    std::byte number{static_cast<unsigned char>(world().rank() == last ? i : 255)};
    world().transfer(std::span(&number, 1), last, 0);
    EXPECT_EQ(std::to_integer<int>(number), world().rank() == 0 || world().rank() == last ? i : 255);
  }
}

TEST(Transfer, RefusesRanksThatAreNone) {
  std::byte one{1};
  for (const auto& [from, to] :
       {std::pair(-1, 0), std::pair(0, -1), std::pair(world().size(), 0), std::pair(0, world().size())}) {
    try {
      world().transfer(std::span(&one, 1), from, to);
      FAIL() << from << " to " << to;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_NE(std::string(error.what()).find(cat("transfer from rank ", from, " to rank ", to, " of ")),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Transfer, FailuresOfMpiNameTheCall) {
  const int last = world().size() - 1;
  if (last == 0 || (world().rank() != 0 && world().rank() != last)) return;
  std::byte one{1};
  // Each side fails before it has sent or received anything, so the ranks stay in step.
  const FailingCall failing(world().rank() == last ? "MPI_Send" : "MPI_Recv", MPI_ERR_OTHER);
  try {
    world().transfer(std::span(&one, 1), last, 0);
    FAIL() << "the error was lost";
  } catch (const CommunicationError& error) {
    EXPECT_NE(std::string(error.what()).find(cat("transfer(1 bytes, from rank ", last, " to rank 0)")),
              std::string::npos)
        << error.what();
  }
}

TEST(Transfer, OfOneRankKnowsOnlyItself) {
  SingleCommunicator single;
  std::byte one{7};
  single.transfer(std::span(&one, 1), 0, 0);
  EXPECT_EQ(one, std::byte{7});
  EXPECT_THROW(single.transfer(std::span(&one, 1), 0, 1), Error);
  EXPECT_THROW(single.transfer(std::span(&one, 1), 1, 0), Error);
}

}  // namespace
}  // namespace tandem
