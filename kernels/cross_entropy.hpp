// Negative log-likelihood of target tokens and its gradient, on a chunk of scored positions.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// nll[n] = log sum_v exp(logits[n,v]) - logits[n,target[n]], the sum in double, rounded once to float.
// gradient[n,:] = d nll[n] / d logits[n,:] = softmax(logits[n,:]) - onehot(target[n]): null data: not wanted;
// may be logits itself. logits [N,V], left with other contents; target [N], each in [0, V); nll [N],
// overwritten.
void cross_entropy(const CpuContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Matrix gradient);

// On a device logits are left as they are. The sum in float32, in an order fixed by V.
void cross_entropy(const CudaContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Matrix gradient);
void cross_entropy(const CudaContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Bf16Matrix gradient);

}  // namespace tandem
