// GPUs that are only said to be there, for tests of what is made of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/gpu_system.hpp"
#include "src/base/error.hpp"

namespace tandem::support {

// A driver and libraries that fit one another.
inline constexpr GpuVersions kGoodVersions{.driver = 13000,
                                           .runtime_built = 13000,
                                           .runtime = 13000,
                                           .cublas_lt_built = 130002,
                                           .cublas_lt = 130002,
                                           .nccl_built = 22809,
                                           .nccl = 22809};

class PlayedSystem final : public GpuSystem {
 public:
  PlayedSystem() = default;
  explicit PlayedSystem(std::vector<GpuInfo> seen, const GpuVersions& versions = kGoodVersions)
      : found(versions), gpus(std::move(seen)) {}

  GpuVersions versions() override {
    if (!trouble.empty()) throw Error(ErrorKind::kDevice, trouble);
    return found;
  }
  std::vector<GpuInfo> visible() override { return gpus; }
  std::uint64_t free_bytes(int) override { return free; }

  GpuVersions found = kGoodVersions;
  std::vector<GpuInfo> gpus{{"NVIDIA H200", "0000:1B:00.0", std::uint64_t{140} << 30, 9, 0}};
  std::uint64_t free = std::uint64_t{139} << 30;
  std::string trouble;  // what versions() throws; "": nothing
};

}  // namespace tandem::support
