// Between number formats, on a device.
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/base/bf16.hpp"

namespace tandem {

// y[i] = x[i], rounded to nearest even; NaN stays NaN. Equal lengths.
void to_bf16(const CudaContext& ctx, std::span<Bf16> y, std::span<const float> x);

}  // namespace tandem
