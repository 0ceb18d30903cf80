// The world of a test under mpirun, and faults planted in MPI itself.
#pragma once

#include "comm/mpi_communicator.hpp"

namespace tandem::mpi_test {

// Over all ranks; made by main, used by every test.
MpiCommunicator& world();

// While it lives, the next call of the MPI function `name` ("MPI_Allreduce") on this rank fails with `code`.
class FailingCall {
 public:
  FailingCall(const char* name, int code);
  ~FailingCall();
};

// Calls of MPI_Comm_free by this process so far.
int n_comm_frees();

}  // namespace tandem::mpi_test
