#include "src/cli/train_command.hpp"

#include <mpi.h>

#include <exception>
#include <iomanip>
#include <ios>
#include <iostream>
#include <map>
#include <string>

#include "comm/launcher.hpp"
#include "comm/mpi_communicator.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/print_error.hpp"
#include "src/cli/process_setup.hpp"
#include "src/cli/start_mpi.hpp"
#include "src/cli/version.hpp"
#include "src/train/run.hpp"

namespace tandem {

namespace {

void print_summary(const Config& config, const RunSummary& summary) {
  std::cout << "trained " << counted(summary.updates, "update") << " on "
            << counted(summary.n_train, "sample") << ": " << config.run.out << "/native.h5, "
            << config.run.out << "/adapter\n";
  if (summary.loss_before && summary.loss_after)
    std::cout << "held-out loss " << std::fixed << std::setprecision(6) << *summary.loss_before << " before, "
              << *summary.loss_after << " after\n";
  std::cout << std::flush;
}

int run(Config config, Communicator& comm) {
  const Version v = version();
  config.execution.build = build_text(v);
  config.execution.instruction_set = v.instruction_set;
  const std::map<std::string, std::string> facts = {
      {"version", v.version},   {"git", v.git},
      {"compiler", v.compiler}, {"build", build_text(v)},
      {"onednn", v.onednn},     {"hdf5", v.hdf5},
      {"mpi", v.mpi},           {"instruction_set", v.instruction_set}};
  const RunSummary summary = run_training(config, comm, facts);
  try {
    if (comm.rank() == 0) print_summary(config, summary);
  } catch (const std::ios_base::failure&) {
    throw Error(ErrorKind::kInput, "standard output: cannot be written; the run is complete");
  }
  return 0;
}

}  // namespace

int train_command(const std::function<Config()>& read_config) {
  keep_freed_memory();
  start_mpi();
  int code = 0, size = 1;
  try {
    int rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check_launcher(size);
    try {
      MpiCommunicator comm(MPI_COMM_WORLD);
      code = run(agree(comm, read_config), comm);
    } catch (const AgreedError& error) {
      if (error.rank() == rank) print_error(error.what());
      code = error.exit_code();
    }
    MPI_Finalize();
    return code;
  } catch (const Error& error) {
    print_error(error.what());
    code = error.exit_code();
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    code = static_cast<int>(ErrorKind::kDevice);
  } catch (const std::exception& error) {
    print_error(cat("internal error: ", error.what()));
    code = static_cast<int>(ErrorKind::kInternal);
  }
  // Nobody waits for a rank that is alone, and MPI_Abort would add a page to the error.
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

}  // namespace tandem
