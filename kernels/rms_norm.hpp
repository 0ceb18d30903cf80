// RMSNorm (Zhang and Sennrich 2019) over rows. The weight is frozen, so it has no gradient.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// y[t,c] = w[c] * x[t,c] * rstd[t], rstd[t] = 1/sqrt(mean_c x[t,:]^2 + eps).  x, y [T,C]; w [C].
// The mean in double, rstd rounded once to float. y may be x. Overwrites y.
void rms_norm_forward(const CpuContext& ctx, Matrix y, ConstMatrix x, std::span<const float> w, float eps);

// dx[t,c] (+)= rstd[t] * (w[c] dy[t,c] - x[t,c] rstd[t]^2 mean_c(w dy x)).  Recomputes rstd from x.
// accumulate: adds to dx (the residual stream's gradient), else overwrites. dx may not be dy or x.
void rms_norm_backward(const CpuContext& ctx, Matrix dx, ConstMatrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate);

// On a device: sums in float32, in an order fixed by the row's length. bf16: y, and dy, as they are stored.
void rms_norm_forward(const CudaContext& ctx, Matrix y, ConstMatrix x, std::span<const float> w, float eps);
void rms_norm_forward(const CudaContext& ctx, Bf16Matrix y, ConstMatrix x, std::span<const float> w,
                      float eps);
void rms_norm_backward(const CudaContext& ctx, Matrix dx, ConstMatrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate);
void rms_norm_backward(const CudaContext& ctx, Matrix dx, ConstBf16Matrix dy, ConstMatrix x,
                       std::span<const float> w, float eps, bool accumulate);

}  // namespace tandem
