#include "comm/launcher.hpp"

#include <charconv>
#include <cstdlib>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

std::optional<long long> number(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  long long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& seen, const std::string& found) {
  throw Error(ErrorKind::kDevice, cat(seen, found,
                                      ": the launcher and this MPI library do not understand each other; "
                                      "start with the library's own mpirun"
                                      ", or under Slurm with srun --mpi=pmix (MPICH: --mpi=pmi2)"));
}

// Batch scripts, interactive shells and the like run as steps of their own, numbered down from 2^32 - 1; what
// they hold is one process, though variables of the allocation may say more.
bool in_special_step(const Environment& environment) {
  const auto step = number(environment, "SLURM_STEP_ID");
  return step && (*step < 0 || *step >= 4294967280);
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string check_launcher_before_mpi(bool open_mpi, const Environment& environment) {
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (environment(name)) return "";
  if (in_special_step(environment)) return "";
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (!tasks) return "";
  for (const char* name : {"PMI_FD", "PMI_RANK", "PMI_PORT", "PMI_CONTROL_PORT"})
    if (environment(name))
      return open_mpi ? "srun offers PMI2 and no PMIx: if MPI does not start now, use srun --mpi=pmix or the "
                        "library's own mpirun"
                      : "";
  if (*tasks > (open_mpi ? 0 : 1))
    refuse("srun gives MPI nothing to find the other processes with, and ",
           cat("SLURM_STEP_NUM_TASKS = ", *tasks));
  return "";
}

void check_launcher(int mpi_size, const Environment& environment) {
  if (mpi_size > 1) return;
  const std::string seen = "MPI sees one process, but ";
  // A launcher of MPI programs knows best: `srun ... mpirun -n 1` is one process, whatever srun's variables
  // say.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    const auto size = number(environment, name);
    if (size && *size > 1) refuse(seen, cat(name, " = ", *size));
    if (size) return;
  }
  if (in_special_step(environment)) return;
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (tasks && *tasks > 1) refuse(seen, cat("SLURM_STEP_NUM_TASKS = ", *tasks));
  const auto task = number(environment, "SLURM_PROCID");
  if (task && *task > 0) refuse(seen, cat("SLURM_PROCID = ", *task));
}

Launcher find_launcher(const Environment& environment) {
  const auto size = [&](const char* name) -> std::optional<int> {
    const auto value = number(environment, name);
    if (!value) return std::nullopt;
    return static_cast<int>(*value);
  };
  if (environment("OMPI_COMM_WORLD_SIZE")) return {"Open MPI's mpirun", size("OMPI_COMM_WORLD_SIZE")};
  if (environment("MV2_COMM_WORLD_SIZE")) return {"MVAPICH's mpirun", size("MV2_COMM_WORLD_SIZE")};
  const auto tasks = size("SLURM_STEP_NUM_TASKS"), processes = size("PMI_SIZE");
  // Another number of PMI's: mpiexec was started inside a step.
  if (tasks && !in_special_step(environment) && (!processes || processes == tasks))
    return {environment("PMIX_RANK") ? "srun --mpi=pmix" : "srun", tasks};
  if (environment("PMI_SIZE")) return {"a launcher with PMI", processes};
  return {"none", std::nullopt};
}

}  // namespace tandem
