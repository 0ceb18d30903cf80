// The gated activation of the MLP (Shazeer 2020).
#pragma once

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// h[t,i] = silu(g[t,i]) * u[t,i], silu(x) = x / (1 + exp(-x)).  gu [T,2I] = (g, u) as the fused product gives
// it; h [T,I], overwritten.
void swiglu_forward(const CpuContext& ctx, Matrix h, ConstMatrix gu);

// dgu [T,2I] of dh [T,I], overwritten; dgu may be gu.
void swiglu_backward(const CpuContext& ctx, Matrix dgu, ConstMatrix dh, ConstMatrix gu);

}  // namespace tandem
