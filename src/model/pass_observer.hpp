// Sees what a forward pass makes, while it is there; changes nothing of it.
#pragma once

#include <cstdint>

#include "src/base/matrix.hpp"

namespace tandem {

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // The residual stream [T, C] after layer l; layers come in order.
  virtual void after_layer(std::int64_t l, ConstMatrix x) = 0;
  // The logits [n, V] of the micro-batch's scored tokens begin, ..., begin + n - 1; they come in order.
  virtual void logits_of(std::int64_t begin, ConstMatrix logits) = 0;
};

}  // namespace tandem
