// Levels 2 and 3: what either stack made of the model's and the data's files. All of it is exact.
#pragma once

#include "io/dataset.hpp"
#include "src/check/report.hpp"
#include "src/mirror/mirror.hpp"
#include "src/model/weights.hpp"

namespace tandem {

// Every base tensor: name, shape, dtype, digest, mean, rms, and its values as they lie in native's memory;
// the configuration as read.
CheckLine check_loading(const mirror::Mirror& mirror, const Weights& weights);

// Every sample: token ids and target marks by digest; the chat template's digest.
CheckLine check_rendering(const mirror::Mirror& mirror, const Dataset& train, const Dataset& held_out);

}  // namespace tandem
