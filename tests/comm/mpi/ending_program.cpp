// ending_program HOW: the last rank leaves while the others are in an all-reduce. The job has to end, soon
// and non-zero.
//   throw   an exception on one rank outside any agreement; main ends the job as the program `tandem` does
//   agreed  an exception inside an agreement, thrown by all
//   exit    _exit(4), as the watchdog does
//   kill    the process dies
//   stop    the process is stopped
//   stuck   every rank lives and waits, in different collectives
//   never   one rank does not come to the first collective
//   launcher  a rank kills the launcher and computes on
//   unwatched  ranks without a wish that rank 0 has; nothing ends
//   slow    one rank computes for much longer than the limits; nothing ends
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "tests/comm/mpi/ending_main.hpp"

namespace {

void run(const std::string& how) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  if (how == "unwatched" && world_rank != 0) setenv("TANDEM_WATCHDOG", "0", 1);
  if (how == "never" && world_rank == 0) sleep(60);
  const tandem::WatchdogLimits short_ones{.start_s = 5, .ask_s = 1, .silent_s = 3, .stuck_s = 4};
  tandem::MpiCommunicator comm(MPI_COMM_WORLD, how == "stop" ? tandem::WatchdogLimits{} : short_ones);
  std::vector<std::int64_t> values(1 << 20);
  const bool leaves = comm.rank() == comm.size() - 1;
  const auto leave = [&] {
    if (how == "exit") _exit(4);
    if (how == "kill") std::raise(SIGKILL);
    if (how == "stop") std::raise(SIGSTOP);
    if (how == "stuck") comm.node()->barrier();
    if (how == "launcher") {
      kill(getppid(), SIGKILL);
      sleep(60);
    }
    if (how == "slow") sleep(10);
    if (how == "slow") return;
    throw tandem::Error(tandem::ErrorKind::kInput, "bad sample");
  };
  for (int update = 0;; ++update) {
    if (how == "agreed") {
      tandem::agree(comm, [&] {
        if (leaves && update == 3) leave();
      });
    } else if (leaves && update == 3 && how != "unwatched") {
      leave();
    }
    comm.at_update(update);
    comm.all_reduce_sum(values);
    if ((how == "slow" || how == "unwatched") && update == 5) return;
  }
}

}  // namespace

int main(int argc, char** argv) { return tandem::mpi_test::ending_main(argc, argv, run); }
