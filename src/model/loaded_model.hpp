// A model in the memory of one process: what evaluates, generates and exports without a run.
#pragma once

#include <filesystem>

#include "src/base/arena.hpp"
#include "src/model/config.hpp"
#include "src/model/weights.hpp"

namespace tandem {

struct LoadedModel {
  ModelConfig config;
  Arena memory;
  Weights weights;
};

// Throws what read_model_config and Weights::load throw; kDevice where the memory is not to be had.
LoadedModel load_model(const std::filesystem::path& model_dir);

}  // namespace tandem
