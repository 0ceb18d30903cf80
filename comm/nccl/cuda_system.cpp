#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>

#include "comm/gpu_system.hpp"
#include "comm/nccl/nccl_version.hpp"
#include "kernels/cuda/check.hpp"

namespace tandem {
namespace {

class CudaSystem final : public GpuSystem {
 public:
  GpuVersions versions() override {
    GpuVersions v{.driver = 0,
                  .runtime_built = CUDART_VERSION,
                  .runtime = 0,
                  .cublas_lt_built = CUBLAS_VERSION,
                  .cublas_lt = static_cast<int>(cublasLtGetVersion()),
                  .nccl_built = cuda::nccl_built_version(),
                  .nccl = cuda::nccl_version()};
    cuda::check(cudaDriverGetVersion(&v.driver), "cudaDriverGetVersion");
    cuda::check(cudaRuntimeGetVersion(&v.runtime), "cudaRuntimeGetVersion");
    return v;
  }

  std::vector<GpuInfo> visible() override {
    int n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
      cudaGetLastError();  // forgotten
      return {};
    }
    cuda::check(error, "cudaGetDeviceCount");
    std::vector<GpuInfo> gpus;
    for (int device = 0; device < n; ++device) {
      cudaDeviceProp properties{};
      cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
      std::array<char, 32> bus_id{};
      cuda::check(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device), "cudaDeviceGetPCIBusId");
      gpus.push_back({.name = properties.name,
                      .bus_id = bus_id.data(),
                      .memory_bytes = properties.totalGlobalMem,
                      .major = properties.major,
                      .minor = properties.minor});
    }
    return gpus;
  }

  std::uint64_t free_bytes(int device) override {
    std::size_t free = 0, total = 0;
    cuda::check(cudaSetDevice(device), "cudaSetDevice");
    cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }
};

}  // namespace

std::unique_ptr<GpuSystem> cuda_system() { return std::make_unique<CudaSystem>(); }

}  // namespace tandem
