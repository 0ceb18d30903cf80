// Norms of what training changes, for observation. In double, in an order fixed by the shapes.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// Frobenius norm of b a, which is not formed: |b a|^2 = sum_ij (b^T b)_ij (a a^T)_ij. b [out,r], a [r,in].
// Relative error of the square: a few (out + in) 2^-53 |b|^2 |a|^2 / |b a|^2.
double product_norm(const CpuContext& ctx, ConstMatrix b, ConstMatrix a);

// 2-norm of x - y. Equal lengths.
double difference_norm(const CpuContext& ctx, std::span<const float> x, std::span<const float> y);

}  // namespace tandem
