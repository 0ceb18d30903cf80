// A Communicator over MPI. The host of the library owns MPI_Init, MPI_Finalize and MPI_Abort.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the old C++ bindings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"

namespace tandem {

// Duplicates the communicator it is given (collective over it), so that its messages never meet the host's,
// and sets MPI_ERRORS_RETURN on the copy: a failing call throws CommunicationError with the collective, its
// counts and the rank. MPI must be initialised with MPI_THREAD_FUNNELED or more.
// A collective that can never end (a rank stopped or lost) ends the process: watchdog.hpp.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm host, WatchdogLimits limits = {});
  // Frees the copy (collective), except while an exception is under way or after a failed call: others may be
  // elsewhere.
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(std::span<std::int64_t> values) override;  // in chunks of 1 MiB
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  std::vector<std::string> all_gather_text(std::string_view mine) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void transfer(std::span<std::byte> bytes, int from, int to) override;
  void barrier() override;
  void at_update(std::int64_t update) override;
  Waiting* waiting() override;
  std::unique_ptr<Communicator> node() override;
  using Communicator::all_reduce_sum;

 private:
  MpiCommunicator() = default;
  void adopt(MPI_Comm own);
  void check(int code, std::string_view call);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int exceptions_ = 0;  // under way when this object was made
  bool failed_ = false;
  std::shared_ptr<Watchdog> watchdog_;  // of the process: a node's communicator has its parent's
};

}  // namespace tandem
