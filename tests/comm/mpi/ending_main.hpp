// main() of programs that end as `tandem train` does: argv[1] says how.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <string>

#include "src/base/error.hpp"

namespace tandem::mpi_test {

template <class Run>
int ending_main(int argc, char** argv, const Run& run) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    run(std::string(argc > 1 ? argv[1] : ""));
  } catch (const Error& error) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const auto* agreed = dynamic_cast<const AgreedError*>(&error);
    if (agreed == nullptr || agreed->rank() == rank)
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    std::fflush(stderr);
    // As the program does: all ranks know it, so nobody is cut off while its line is on the way.
    if (agreed != nullptr) {
      MPI_Finalize();
      return error.exit_code();
    }
    MPI_Abort(MPI_COMM_WORLD, error.exit_code());
  }
  MPI_Finalize();
  return 0;
}

}  // namespace tandem::mpi_test
