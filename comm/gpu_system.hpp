// The GPUs of a job: what this process sees of them, and which rank computes on which. Without CUDA's
// headers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace tandem {

struct GpuInfo {
  std::string name;    // "NVIDIA H200"
  std::string bus_id;  // on PCI: "0000:1B:00.0"
  std::uint64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
};

// As CUDA and NCCL number themselves: 13000 is 13.0, 22809 is 2.28.9. 0: not there.
struct GpuVersions {
  int driver = 0;  // the newest CUDA that the driver knows
  int runtime_built = 0, runtime = 0;
  int cublas_lt_built = 0, cublas_lt = 0;
  int nccl_built = 0, nccl = 0;
};

// CUDA as this process meets it. A program built with CUDA makes one and hands it down; one built without has
// none.
class GpuSystem {
 public:
  virtual ~GpuSystem() = default;
  virtual GpuVersions versions() = 0;
  // The devices that this process may use, in CUDA's order: what CUDA_VISIBLE_DEVICES and Slurm leave.
  // Empty where there is no device or no driver. Throws kDevice where CUDA says anything else.
  virtual std::vector<GpuInfo> visible() = 0;
  // Bytes free on one of them. Takes some memory of its own there. Throws kDevice.
  virtual std::uint64_t free_bytes(int device) = 0;
};

// The one of CUDA's runtime, or of tests' emulation. Only in programs that link tandem_comm_cuda.
std::unique_ptr<GpuSystem> cuda_system();

// Which of its visible devices each rank of a node takes. bus_ids[k]: what local rank k sees. As few ranks as
// can be share a device; ranks that see the same n devices take them in order (k takes k, or k mod n). None
// for a rank that sees none. Pure, so every rank computes the same.
std::vector<std::optional<int>> pick_gpus(std::span<const std::vector<std::string>> bus_ids);

// This rank's device and those of the others.
struct GpuPlan {
  std::optional<int> device;  // none: no rank of the job sees any
  GpuInfo gpu;
  GpuVersions versions;
  bool shared = false;             // some ranks of the job share a device: NCCL cannot sum then
  bool through_host = false;       // so sums go through the host's memory, or it was asked for (may_share)
  int sharers = 1;                 // ranks on this rank's device, itself included
  std::vector<std::string> lines;  // of all ranks: "rank 3 on node07: GPU 1, NVIDIA H200, PCI 0000:1B:00.0"
  std::string warning;             // "", or that the ranks' devices are of different kinds
  std::string why_none;            // where there is none: "no NVIDIA driver", "no device visible (...)"
};

// Collective over comm. host: this rank's, as it is said. Throws AgreedError (kDevice) on every rank, saying
// what to do, where only some ranks see a device, ranks share one and `may_share` is false, version_fault()
// finds one, or the ranks have different libraries.
GpuPlan plan_gpus(Communicator& comm, const std::string& host, GpuSystem& system, bool may_share);

// "" or what is wrong with them, and what to do: a driver too old, another library loaded than built with.
std::string version_fault(const GpuVersions& versions);
// "driver 13.0, CUDA runtime 13.0, cuBLASLt 13.0.2, NCCL 2.28.9": loaded, and what it was built with if
// other.
std::string versions_text(const GpuVersions& versions);

}  // namespace tandem
