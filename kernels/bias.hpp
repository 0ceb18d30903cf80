// A bias on a projection's output (Qwen2's query, key and value). It is frozen, so it has no gradient.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// y[t,c] += b[c].  y [T,C]; b [C].
void add_bias(const CpuContext& ctx, Matrix y, std::span<const float> b);

void add_bias(const CudaContext& ctx, Matrix y, std::span<const float> b);
void add_bias(const CudaContext& ctx, Bf16Matrix y, std::span<const float> b);

}  // namespace tandem
