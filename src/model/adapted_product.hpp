// A fused projection with its adapters: the products that every forward pass makes of them.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"
#include "src/model/lora.hpp"

namespace tandem {

// y = base + x W^T + s u B^T, the last for each adapted module's columns of y, where u = x A^T holds the
// group's members side by side [T, r*members]. adapter: flat array of the layout, or empty: W alone, and u is
// not looked at. base: none (0), y itself, or apart from y.
void adapted_product(const CpuContext& ctx, Matrix y, ConstMatrix base, ConstMatrix x, ConstMatrix w,
                     const LoraLayout& lora, const LoraGroup& group, std::span<const float> adapter,
                     ConstMatrix u);

}  // namespace tandem
