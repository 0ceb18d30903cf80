// The weight that computes what a frozen weight and its adapter compute together.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// delta[o,i] = scale * sum_k b[o,k] a[k,i], all in double, k ascending. a [r,I], b [O,r], delta [O*I],
// overwritten.
void lora_delta(const CpuContext& ctx, std::span<double> delta, ConstMatrix a, ConstMatrix b, double scale);

}  // namespace tandem
