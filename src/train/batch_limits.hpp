#pragma once

#include "io/samples.hpp"
#include "src/model/transformer.hpp"

namespace tandem {

// The largest micro-batches that `micro` samples to a row can make, whatever the order.
BatchLimits batch_limits(const SampleSet& train, const SampleSet& held_out, std::int64_t micro);

}  // namespace tandem
