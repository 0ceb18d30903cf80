// Several processes started by a launcher that MPI does not understand each believe to be rank 0 of 1, and
// would all write the same output. This is found from what the launcher left in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tandem {

// The value of an environment variable, or none.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

// Before MPI starts: throws kDevice where Slurm started processes and offers nothing by which they could find
// one another (srun without PMIx); one process too where MPI is Open MPI, which would end it with a page of
// its own. Returns a line to say before where that may happen: Open MPI seldom understands `srun --mpi=pmi2`.
std::string check_launcher_before_mpi(bool open_mpi, const Environment& environment = process_environment);

// Throws kDevice, naming the variable and the fix, where MPI says one rank and the launcher says more
// processes. Looks at the job step, not at the allocation: one plain process inside an allocation of many
// tasks is right.
void check_launcher(int mpi_size, const Environment& environment = process_environment);

// What started this process, and the number of processes that it says it started.
struct Launcher {
  std::string name;         // "mpirun", "srun --mpi=pmix"; "none"
  std::optional<int> size;  // none where it does not say
};
Launcher find_launcher(const Environment& environment = process_environment);

}  // namespace tandem
