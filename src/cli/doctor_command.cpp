#include "src/cli/doctor_command.hpp"

#include <mpi.h>

#include <exception>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/launcher.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/topology.hpp"
#include "src/base/error.hpp"
#include "src/base/host.hpp"
#include "src/base/text.hpp"
#include "src/cli/launch_rank.hpp"
#include "src/cli/print_error.hpp"
#include "src/cli/start_mpi.hpp"
#include "src/cli/version.hpp"
#include "src/doctor/gpus.hpp"
#include "src/doctor/machine.hpp"
#include "src/doctor/network.hpp"
#include "src/doctor/out_folder.hpp"
#include "src/doctor/report.hpp"
#include "src/doctor/versions.hpp"

namespace tandem {

namespace {

std::string built_mpi() {
#if defined(OPEN_MPI)
  return cat("Open MPI v", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".", OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return "MPICH Version: " MPICH_VERSION;
#else
  return cat("MPI ", MPI_VERSION, ".", MPI_SUBVERSION);
#endif
}

// early: what was refused before MPI started.
Finding check_launcher_fits(int mpi_size, const std::string& early) {
  if (!early.empty()) return failure(ErrorKind::kDevice, early);
  try {
    check_launcher(mpi_size);
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  }
  const Launcher launcher = find_launcher();
  const std::string text = cat(launcher.name, "; MPI joins ", counted(mpi_size, "rank"));
  if (launcher.size && *launcher.size != mpi_size)
    return failure(ErrorKind::kDevice, cat(text, ", the launcher says ", *launcher.size,
                                           ": start with the MPI library's own mpirun, or srun --mpi=pmix"));
  return ok(text);
}

int examine(Communicator& comm, const DoctorOptions& options, const std::string& early, std::ostream& out) {
  const std::unique_ptr<Communicator> node = comm.node();
  const Placement placement = place(comm, options.threads);
  const Version v = version();
  Report report(comm, placement.host, out);
  report.add("launcher", check_launcher_fits(comm.size(), early));
  report.add("hosts", check_hosts(comm, short_host_name()));
  report.add_equal("program", ok(cat("tandem ", build_text(v))), "install the same build on every node");
  // main() has refused a CPU that lacks what the build uses.
  report.add_equal(
      "CPU", ok(cat("has what the build needs; oneDNN ", v.onednn, " computes with ", v.instruction_set)),
      "a run's bits then depend on which rank computes what; nodes of one kind would not", true);
  report.add_equal("MPI", check_mpi(built_mpi(), v.mpi), "load the same module on every node");
  report.add_equal("HDF5", check_hdf5(), "load the same module on every node");
  report_gpus(report, comm, placement.host, options.gpus, options.may_share_gpus);
  report.add("cores", check_cores(*node, placement));
  report.add("memory", check_memory(comm, placement));
  report.add("/dev/shm", check_shared_memory(placement));
  report.add("open files", check_open_files(comm.size()));
  {
    OutFolder folder(comm, options.out);
    report.add("folder", folder.disk());
    report.add("locks", folder.locks());
    report.add("HDF5 file", folder.hdf5_file());
    comm.barrier();
  }
  report.add("clocks", check_clocks(comm));
  report.add("all-reduce", check_all_reduce(comm, options.seconds));
  return report.exit_code();
}

}  // namespace

int doctor_command(const DoctorOptions& options, std::ostream& out) {
  std::ostream silent(nullptr);
  std::ostream& mine = launch_rank().rank == 0 ? out : silent;
  try {
    start_mpi();
  } catch (const Error& error) {
    SingleCommunicator alone;
    return examine(alone, options, error.what(), mine);
  }
  int code = 0, size = 1;
  try {
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
      MpiCommunicator comm(MPI_COMM_WORLD);
      code = examine(comm, options, "", size > 1 ? out : mine);
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
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

}  // namespace tandem
