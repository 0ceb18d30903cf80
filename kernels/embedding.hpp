// Rows of a table by index, and back.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// y[t,:] = table[index[t],:].  table [V,C]; index [T], each in [0, V); y [T,C], overwritten.
void gather_rows(const CpuContext& ctx, Matrix y, ConstMatrix table, std::span<const std::int32_t> index);

// x[index[n],:] = y[n,:], all other rows of x = 0.  x [T,C], overwritten; y [N,C]; index [N], all different.
void scatter_rows(const CpuContext& ctx, Matrix x, ConstMatrix y, std::span<const std::int32_t> index);

void gather_rows(const CudaContext& ctx, Matrix y, ConstMatrix table, std::span<const std::int32_t> index);
void gather_rows(const CudaContext& ctx, Matrix y, ConstBf16Matrix table,
                 std::span<const std::int32_t> index);
void scatter_rows(const CudaContext& ctx, Matrix x, ConstMatrix y, std::span<const std::int32_t> index);

}  // namespace tandem
