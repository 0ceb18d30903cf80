// How many floating-point operations the mirror makes, by the shapes of its products.
#pragma once

#include <cstdint>
#include <functional>

#include "src/mirror/config.hpp"
#include "src/mirror/lora.hpp"
#include "src/mirror/weights.hpp"

namespace tandem::mirror {

struct Cost {
  double projections = 0;  // multiply-adds a token in all layers' projections
  double adapters = 0;     // and in the adapters
  double attention = 0;    // multiply-adds a pair of tokens in all layers
  double head = 0;         // multiply-adds a scored token

  Cost(const Config& config, const Weights& weights, const Lora& lora);
  Cost of_one_layer(std::int64_t n_layers) const;
  double forward(std::int64_t n_ids, std::int64_t n_scored) const;
  // Forward, recomputed, and differentiated; frozen weights get no gradient.
  double gradient(std::int64_t n_ids, std::int64_t n_scored) const;
};

// How fast `work`, of so many operations, is done: repeated for 0.2 s, the first time apart where there is
// more than one.
double operations_per_second(double operations, const std::function<void()>& work);

}  // namespace tandem::mirror
