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
  // How many of those are looked at: what lies on a device comes to the host for it.
  virtual std::int64_t wanted_logits(std::int64_t /*begin*/, std::int64_t n) const { return n; }
};

}  // namespace tandem
