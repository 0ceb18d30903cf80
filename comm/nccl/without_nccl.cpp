// In place of nccl_reduction.cpp where the build found no NCCL.
#include "comm/device_reduction.hpp"
#include "comm/nccl/nccl_version.hpp"

namespace tandem {

namespace cuda {
int nccl_built_version() { return 0; }
int nccl_version() { return 0; }
}  // namespace cuda

std::unique_ptr<DeviceReduction> nccl_reduction(Communicator&, const CudaContext&, const ReductionLimits&) {
  throw Error(
      ErrorKind::kDevice,
      "this program was built without NCCL: sums over ranks can go over MPI, or build where nccl.h and "
      "libnccl are");
}

}  // namespace tandem
