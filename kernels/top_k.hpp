// The largest logits of each row, for observation.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// id[n, k], value[n, k] = column and value of the k-th largest element of x[n,:], k = 0..K-1, the largest
// first, equal ones by ascending column; -1 and NaN where the row has fewer elements. NaN elements are passed
// over. x [N,V]; id and value [N,K] row-major, overwritten.
void top_k(const CpuContext& ctx, std::span<std::int64_t> id, std::span<float> value, ConstMatrix x,
           std::int64_t k);

}  // namespace tandem
