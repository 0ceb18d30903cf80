// The adapter that a run starts from.
#pragma once

#include <span>
#include <string>

#include "src/model/lora.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

// Drawn, or the values of lora.init. flat: array of the layout. Returns a warning, or "". Throws kInput where
// that adapter does not fit.
std::string first_adapter(std::span<float> flat, const LoraLayout& lora, const RunSpec& spec);

}  // namespace tandem
