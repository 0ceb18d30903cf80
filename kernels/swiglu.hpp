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

// On a device; all in float32 but what is stored.
void swiglu_forward(const CudaContext& ctx, Matrix h, ConstMatrix gu);
void swiglu_forward(const CudaContext& ctx, Bf16Matrix h, ConstBf16Matrix gu);
void swiglu_backward(const CudaContext& ctx, Matrix dgu, ConstMatrix dh, ConstMatrix gu);
void swiglu_backward(const CudaContext& ctx, Bf16Matrix dgu, ConstBf16Matrix dh, ConstBf16Matrix gu);

}  // namespace tandem
