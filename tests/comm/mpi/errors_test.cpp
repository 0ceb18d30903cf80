// Every MPI call that fails becomes one line with the collective, its counts and the rank.
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"

namespace tandem {
namespace {

using mpi_test::FailingCall;
using mpi_test::world;

// The text of what `work` throws on a communicator of its own while the MPI function fails; all ranks fail
// alike.
template <class Work>
std::string text_of(const char* function, Work&& work) {
  MpiCommunicator comm(MPI_COMM_WORLD);
  const FailingCall failing(function, MPI_ERR_NO_MEM);
  try {
    work(comm);
  } catch (const CommunicationError& error) {
    EXPECT_EQ(error.exit_code(), 4);
    return error.what();
  }
  return "no error";
}

std::string failed(std::string_view call, int code = MPI_ERR_NO_MEM) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);  // libraries have their own
  return cat(call, " failed on rank ", world().rank(), " of ", world().size(), ": ", text.data());
}

TEST(MpiErrors, NameTheCollectiveItsCountsAndTheRank) {
  std::vector<std::int64_t> many(300'000);
  std::array<std::byte, 24> bytes{};
  EXPECT_EQ(text_of("MPI_Allreduce", [&](auto& comm) { comm.all_reduce_sum(many); }),
            failed("all_reduce_sum(300000 int64, at 0)"));
  EXPECT_EQ(text_of("MPI_Allgather", [](auto& comm) { comm.all_gather_value(std::int64_t{1}); }),
            failed("all_gather(8 bytes of each rank)"));
  EXPECT_EQ(text_of("MPI_Allgather", [](auto& comm) { comm.all_gather_text("abc"); }),
            failed("all_gather(8 bytes of each rank)"));
  EXPECT_EQ(text_of("MPI_Allgatherv", [](auto& comm) { comm.all_gather_text("abc"); }),
            failed(cat("all_gather_text(3 of ", 3 * world().size(), " bytes)")));
  EXPECT_EQ(text_of("MPI_Bcast", [&](auto& comm) { comm.broadcast(bytes, 0); }),
            failed("broadcast(24 bytes, from rank 0)"));
  EXPECT_EQ(text_of("MPI_Barrier", [](auto& comm) { comm.barrier(); }), failed("barrier()"));
  EXPECT_EQ(text_of("MPI_Comm_split_type", [](auto& comm) { (void)comm.node(); }), failed("node()"));
}

TEST(MpiErrors, OfConstructionAreErrorsToo) {
  {
    const FailingCall failing("MPI_Comm_dup", MPI_ERR_INTERN);
    try {
      MpiCommunicator comm(MPI_COMM_WORLD);
      FAIL() << "made without a copy";
    } catch (const CommunicationError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 20), "MPI_Comm_dup failed ");
    }
  }
  const FailingCall failing("MPI_Query_thread", MPI_THREAD_SINGLE);
  try {
    MpiCommunicator comm(MPI_COMM_WORLD);
    FAIL() << "made for one thread only";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(std::string(error.what()).find("MPI_THREAD_FUNNELED"), std::string::npos) << error.what();
  }
}

// A real error: it would end the program if the copy still had MPI's default error handler.
TEST(MpiErrors, DoNotEndTheProgramByThemselves) {
  MpiCommunicator comm(MPI_COMM_WORLD);
  std::array<std::byte, 8> bytes{};
  try {
    comm.broadcast(bytes, comm.size());
    FAIL() << "broadcast from a rank that does not exist";
  } catch (const CommunicationError& error) {
    // MPICH adds what it knows beyond the class.
    const std::string call = cat("broadcast(8 bytes, from rank ", comm.size(), ")");
    EXPECT_TRUE(std::string(error.what()).starts_with(failed(call, MPI_ERR_ROOT))) << error.what();
  }
}

TEST(MpiErrors, BuffersThatDoNotFitAreRefusedBeforeAnyRankWaits) {
  std::array<std::byte, 4> mine{};
  std::vector<std::byte> all(4 * static_cast<std::size_t>(world().size()) + 1);
  EXPECT_THROW(world().all_gather(mine, all), Error);
  EXPECT_THROW(SingleCommunicator().all_gather(mine, all), Error);
}

// Freeing is collective, so a rank that has failed leaves it.
TEST(MpiErrors, AFailedRankDoesNotWaitForOthersToFreeTheCommunicator) {
  const int before = mpi_test::n_comm_frees();
  try {
    MpiCommunicator comm(MPI_COMM_WORLD);
    throw std::runtime_error("elsewhere");
  } catch (const std::runtime_error&) {
  }
  EXPECT_NE(text_of("MPI_Barrier", [](auto& comm) { comm.barrier(); }), "no error");
  EXPECT_EQ(mpi_test::n_comm_frees(), before);
  { MpiCommunicator comm(MPI_COMM_WORLD); }
  EXPECT_EQ(mpi_test::n_comm_frees(), before + 1);
}

}  // namespace
}  // namespace tandem
