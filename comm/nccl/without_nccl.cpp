// In place of nccl_reduction.cpp where the build found no NCCL.
#include "comm/device_reduction.hpp"
#include "comm/nccl/nccl_version.hpp"

namespace tandem {

namespace cuda {
int nccl_built_version() { return 0; }
int nccl_version() { return 0; }
}  // namespace cuda

std::unique_ptr<DeviceReduction> nccl_reduction(Communicator&, const CudaContext&, const ReductionLimits&) {
  throw AgreedError(ErrorKind::kDevice,
                    "this program was built without NCCL: let sums over ranks go over MPI (gpu = shared), or "
                    "build where nccl.h and libnccl are",
                    0);
}

}  // namespace tandem
