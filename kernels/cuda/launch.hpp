// The one way to start a kernel.
#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/context_members.hpp"
#include "kernels/cuda/port.hpp"

namespace tandem::cuda {

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// Blocks that `count` items need, `per_block` each.
constexpr std::int64_t blocks_for(std::int64_t count, std::int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

// A kernel's name in a profile's time line.
class NamedRange {
 public:
  explicit NamedRange(const char* name) { nvtxRangePushA(name); }
  ~NamedRange() { nvtxRangePop(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

// Throws kInternal where CUDA cannot start such a grid.
cudaLaunchConfig_t launch_config(const CudaContext& ctx, const char* name, const Grid& grid, int threads,
                                 std::size_t shared_bytes);
// Lets a kernel have more than the 48 KiB of shared memory that it has unasked.
void allow_shared_bytes(const CudaContext& ctx, const char* name, const void* kernel, std::size_t bytes);

// Gives kernel(arguments...) to the context's stream: grid.x * grid.y * grid.z blocks of `threads` (whole
// warps) with `shared_bytes` of shared memory each. An empty grid does nothing. Throws kDevice: NAME and
// CUDA's words.
template <class... P, class... A>
void launch(const CudaContext& ctx, const char* name, void (*kernel)(P...), const Grid& grid, int threads,
            std::size_t shared_bytes, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument for each parameter of the kernel");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const NamedRange range(name);
  const cudaLaunchConfig_t config = launch_config(ctx, name, grid, threads, shared_bytes);
  const auto* address = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > std::size_t{48} * 1024) allow_shared_bytes(ctx, name, address, shared_bytes);
  std::tuple<P...> values(std::forward<A>(arguments)...);
#ifdef TANDEM_EMULATED
  std::apply([](auto&... value) { (emulated::clear_padding(value), ...); }, values);
  std::apply([&](const auto&... value) { (emulated::check_argument(name, &value, sizeof(value)), ...); },
             values);
  check(emulated::launch(config, name, address, [kernel, values] { std::apply(kernel, values); }), name);
#else
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        check(cudaLaunchKernelExC(&config, address, pointers), name);
      },
      values);
#endif
}

}  // namespace tandem::cuda
