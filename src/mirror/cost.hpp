// How many floating-point operations the mirror makes, by the shapes of its products.
#pragma once

#include <cstdint>

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
  double forward(std::int64_t n_ids, std::int64_t n_scored) const;
  // Forward, recomputed, and differentiated; frozen weights get no gradient.
  double gradient(std::int64_t n_ids, std::int64_t n_scored) const;
};

double measured_flops_per_second(std::int64_t channels_in, std::int64_t channels_out);

}  // namespace tandem::mirror
