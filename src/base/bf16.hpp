// A bfloat16 number as it lies in memory. dtype.hpp converts on the host, kernels/cuda/port.hpp in kernels.
#pragma once

#include <cstdint>

namespace tandem {

struct Bf16 {
  std::uint16_t bits;
};

}  // namespace tandem
