// What a run reads: the model's configuration, training and held-out samples.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

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

// What of loading changes no sample; `told` is given a line on how far it is.
struct InputAids {
  int threads = 0;
  std::filesystem::path cache;  // data.cache; empty: none
  bool write_cache = true;      // one process of a node writes, the others only read
  std::function<void(const std::string&)> told;
};

// Throws kInput and kUsage: also where the training set, or a held-out set that is given, has nothing to
// score, and where data.max_tokens exceeds the model's positions.
RunInputs load_inputs(const RunSpec& spec, const InputAids& aids);

}  // namespace tandem
