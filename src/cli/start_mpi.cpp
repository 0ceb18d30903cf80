#include "src/cli/start_mpi.hpp"

#include <mpi.h>

#include <string>

#include "comm/launcher.hpp"
#include "src/base/error.hpp"
#include "src/cli/launch_rank.hpp"
#include "src/cli/print_error.hpp"

namespace tandem {

void start_mpi() {
#ifdef OPEN_MPI
  constexpr bool kOpenMpi = true;
#else
  constexpr bool kOpenMpi = false;
#endif
  const std::string doubt = check_launcher_before_mpi(kOpenMpi);
  if (!doubt.empty() && launch_rank().rank == 0) print_error(doubt);
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED)
    throw Error(ErrorKind::kDevice, "MPI does not start with thread support (MPI_THREAD_FUNNELED)");
}

}  // namespace tandem
