// How large the rows of a matrix are, for observation.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// squares[t] = sum_c x[t,c]^2 in double, absmax[t] = max_c |x[t,c]|. x [T,C]; both [T], overwritten. Rows
// with NaN have NaN squares; their absmax means nothing.
void row_magnitude(const CpuContext& ctx, std::span<double> squares, std::span<float> absmax, ConstMatrix x);

}  // namespace tandem
