#include "src/doctor/gpus.hpp"

#include <cstdint>
#include <optional>

#include "src/base/text.hpp"

namespace tandem {
namespace {

Finding check_libraries(GpuSystem& system) {
  try {
    const GpuVersions versions = system.versions();
    const std::string fault = versions.driver == 0 ? "" : version_fault(versions);
    if (!fault.empty()) return failure(ErrorKind::kDevice, fault);
    return ok(versions_text(versions));
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  }
}

// line: of this rank in the plan.
Finding check_device(GpuSystem& system, const GpuPlan& plan, const std::string& line) {
  constexpr int kOldestMajor = 8;  // what the kernels are built for
  const std::string text = line.substr(line.find(": ") + 2);
  if (plan.gpu.major < kOldestMajor)
    return failure(ErrorKind::kDevice, cat(text, ": compute capability ", plan.gpu.major, ".", plan.gpu.minor,
                                           "; ", kOldestMajor, ".0 or newer is needed"));
  std::uint64_t free = 0;
  try {
    free = system.free_bytes(*plan.device);
  } catch (const Error& error) {
    return failure(error.kind(), cat(text, ": ", error.what()));
  }
  const std::string with_free = cat(text, ", ", size_text(static_cast<double>(free)), " free");
  // CUDA itself takes less than a tenth.
  if (free < plan.gpu.memory_bytes - plan.gpu.memory_bytes / 10 && !plan.shared)
    return note(cat(with_free, ": another process uses it (nvidia-smi tells which)"));
  return ok(with_free);
}

Finding check_sum(const GpuPlan& plan, int n_ranks) {
  if (n_ranks == 1) return ok("one rank: nothing to sum");
  if (plan.shared) return note("ranks share a GPU: gradients are summed through the host over MPI");
  if (plan.through_host) return ok("not used: gradients are summed through the host over MPI");
  if (plan.versions.nccl_built == 0)
    return failure(
        ErrorKind::kDevice,
        "this program was built without it: gradients of several ranks need gpu = shared, or build "
        "where nccl.h and libnccl are");
  return ok(
      "sums gradients; inside a node it takes some MiB of /dev/shm a rank. Not tried here: peer-to-peer "
      "access "
      "between GPUs (nvidia-smi topo -p2p r), the network (nccl-tests)");
}

}  // namespace

void report_gpus(Report& report, Communicator& comm, const std::string& host, GpuSystem* system,
                 bool may_share) {
  if (!system) {
    report.add("GPU", ok("not built in: this build computes on CPUs"));
    return;
  }
  report.add_equal("CUDA", check_libraries(*system), "a driver may, libraries may not: load the same module",
                   true);
  GpuPlan plan;
  try {
    plan = plan_gpus(comm, host, *system, may_share);
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error& error) {  // the same on all ranks
    report.add("GPU", failure(error.kind(), error.what()));
    return;
  }
  if (!plan.device) {
    report.add("GPU", note(cat(plan.why_none, ": runs compute on CPUs")));
    return;
  }
  report.add("GPU", check_device(*system, plan, plan.lines[static_cast<std::size_t>(comm.rank())]));
  if (!plan.warning.empty()) report.add("GPU", note(plan.warning));
  report.add("NCCL", check_sum(plan, comm.size()));
}

}  // namespace tandem
