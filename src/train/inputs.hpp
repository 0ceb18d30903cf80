// What a run reads: the model's configuration, training and held-out samples.
#pragma once

#include "io/dataset.hpp"
#include "src/model/config.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

struct RunInputs {
  ModelConfig config;
  Dataset train, held_out;  // held_out: empty without evaluation
};

// What rendering needs to know of the spec; vocab_size and threads are the caller's to add.
RenderOptions render_options(const RunSpec& spec);

// Throws kInput and kUsage: also where the training set, or a held-out set that is given, has nothing to score, and
// where data.max_tokens exceeds the model's positions.
RunInputs load_inputs(const RunSpec& spec, int threads);

}  // namespace tandem
