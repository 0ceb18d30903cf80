// Which rank computes which micro-batch. It changes nothing but the time: gradients are added exactly.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/samples.hpp"

namespace tandem {

// owner[j] = rank of micro-batch j = samples [j*micro, (j+1)*micro) of the batch.
//   least_loaded: the rank with the fewest tokens so far takes the next (the lowest of equals);
//   round_robin: rank j mod ranks;  reversed: ranks from the last to the first in turn.
void deal(std::vector<int>& owner, const std::string& how, const SampleSet& samples,
          std::span<const std::int64_t> batch, std::int64_t micro, int ranks);

}  // namespace tandem
