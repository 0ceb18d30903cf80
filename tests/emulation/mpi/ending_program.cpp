// ending_program HOW: the last rank leaves in the middle of a sum over NCCL, when the others have started
// theirs. The job has to end, soon and non-zero; main does what the program `tandem` does.
//   kill   the process dies           stop   the process is stopped
//   throw  an exception               stuck  every rank lives and waits, one of them over MPI
//   async  NCCL reports an error on rank 0     abort  the same, and ncclCommAbort hangs
//   late   no watchdog, and the last rank comes after the limit
//   agreed an exception that all ranks throw, while those that had begun have a sum under way
//   slow   the last rank comes later than the watchdog's limits; nothing ends
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "comm/device_reduction.hpp"
#include "comm/mpi_communicator.hpp"
#include "tests/comm/mpi/ending_main.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace {

void run(const std::string& how) {
  if (how == "late") setenv("TANDEM_WATCHDOG", "0", 1);
  const tandem::WatchdogLimits short_ones{.start_s = 5, .ask_s = 1, .silent_s = 3, .stuck_s = 4};
  tandem::MpiCommunicator comm(MPI_COMM_WORLD, how == "stop" ? tandem::WatchdogLimits{} : short_ones);
  const tandem::CudaContext ctx(comm.rank());
  const bool leaves = comm.rank() == comm.size() - 1;
  const auto leave = [&] {
    if (how == "kill") std::raise(SIGKILL);
    if (how == "stop") std::raise(SIGSTOP);
    if (how == "stuck") comm.barrier();
    if (how == "slow" || how == "late") sleep(how == "slow" ? 10 : 60);
    if (how == "throw" || how == "agreed") throw tandem::Error(tandem::ErrorKind::kInput, "bad sample");
  };
  const tandem::testing::DeviceArray<std::int64_t> values(ctx, std::vector<std::int64_t>(4096, 1));
  const auto reduction =
      tandem::nccl_reduction(comm, ctx, {.start_s = 20, .sum_s = how == "late" ? 2.0 : 60.0});
  for (int update = 1; update <= 5; ++update) {
    comm.at_update(update);
    if (how == "agreed")
      tandem::agree(comm, [&] {
        if (leaves && update == 3) leave();
        reduction->start(ctx, values.span());
      });
    else if (leaves && update == 3)
      leave();
    if (update == 3 && comm.rank() == 0 && (how == "async" || how == "abort")) {
      tandem::emulation::fail_next("nccl async error", 6 /* ncclRemoteError */, 3);
      if (how == "abort") tandem::emulation::fail_next("nccl abort hangs", 1);
    }
    if (leaves && update == 3 && (how == "async" || how == "abort")) sleep(60);
    if (how != "agreed") reduction->start(ctx, values.span());
    reduction->finish(ctx, tandem::cat("update ", update));
  }
}

}  // namespace

int main(int argc, char** argv) { return tandem::mpi_test::ending_main(argc, argv, run); }
