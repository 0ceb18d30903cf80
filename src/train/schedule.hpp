// The learning rate of update t = 1..T (SPEC.md, "Optimiser").
#pragma once

#include <cstdint>
#include <string>

#include "src/spec/run_spec.hpp"

namespace tandem {

// spec must be resolved.
double learning_rate(const RunSpec& spec, std::int64_t t);

// One line where every update has the learning rate 0, "" elsewhere: a single update of a falling schedule
// has the last update's, lr_min. spec must be resolved.
std::string why_nothing_is_learned(const RunSpec& spec);

// min(1, max_norm / (norm + 1e-6)); 1 where max_norm <= 0.
double clip_factor(double norm, double max_norm);

}  // namespace tandem
