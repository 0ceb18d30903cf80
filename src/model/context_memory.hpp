// Memory where a context computes, and what gets there from the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/context.hpp"
#include "kernels/cuda_context.hpp"
#include "src/base/arena.hpp"

namespace tandem {

template <class Context>
struct MemoryOf;

template <>
struct MemoryOf<CpuContext> {
  static constexpr bool kOnHost = true;
  using Block = Arena;
  static Block allocate(const CpuContext&, std::size_t bytes, const char* what) { return {bytes, what}; }
  static void zero(const CpuContext&, std::span<float> x) { std::fill(x.begin(), x.end(), 0.0f); }
};

template <>
struct MemoryOf<CudaContext> {
  static constexpr bool kOnHost = false;
  using Block = DeviceArena;
  static Block allocate(const CudaContext& ctx, std::size_t bytes, const char* what) {
    return {ctx, bytes, what};
  }
  static void zero(const CudaContext& ctx, std::span<float> x) { zero_bytes(ctx, x.data(), x.size_bytes()); }
};

}  // namespace tandem
