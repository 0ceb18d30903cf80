// LoRA dropout (SPEC.md): which elements are kept is a function of update, sample, position and channel
// alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"
#include "src/base/random.hpp"

namespace tandem {

struct DropoutMask {
  RandomStream stream;                        // of (seed, "dropout." + module)
  double p = 0.0;                             // in [0, 1)
  std::span<const std::uint64_t> sample_key;  // [T] splitmix64(update << 32 | sample index)
  std::span<const std::int32_t> position;     // [T]
};

// Element (t, c) of C channels is kept where unit(draw(sample_key[t] + position[t]*C + c)) >= p.
// y[t,c] = x[t,c] / (1-p) where kept, else 0. x, y [T,C]; y may be x.
void dropout(const CpuContext& ctx, Matrix y, ConstMatrix x, const DropoutMask& mask);

// dx[t,c] += dy[t,c] / (1-p) where kept.
void dropout_backward(const CpuContext& ctx, Matrix dx, ConstMatrix dy, const DropoutMask& mask);

// On a device, the spans of `mask` in its memory; the same elements are kept.
void dropout(const CudaContext& ctx, Matrix y, ConstMatrix x, const DropoutMask& mask);
void dropout(const CudaContext& ctx, Bf16Matrix y, ConstBf16Matrix x, const DropoutMask& mask);
void dropout_backward(const CudaContext& ctx, Matrix dx, ConstMatrix dy, const DropoutMask& mask);
void dropout_backward(const CudaContext& ctx, Matrix dx, ConstBf16Matrix dy, const DropoutMask& mask);
void dropout_backward(const CudaContext& ctx, Bf16Matrix dx, ConstBf16Matrix dy, const DropoutMask& mask);

}  // namespace tandem
