// The fixed probe: what the model says of the first scored tokens of the held-out set, and how large its
// activations and adapters are (io/FORMAT.md, "The probe").
#pragma once

#include <vector>

#include "src/mirror/mirror.hpp"
#include "src/mirror/samples.hpp"
#include "src/mirror/transformer.hpp"

namespace tandem::mirror {

std::vector<ProbeToken> first_scored_tokens(const std::vector<Sample>& held_out, std::int64_t most);

Probe run_probe(const Transformer& transformer, const Weights& weights, const Lora& lora,
                const std::vector<Sample>& held_out, const std::vector<ProbeToken>& tokens,
                const Tensors& adapter, int threads);

}  // namespace tandem::mirror
