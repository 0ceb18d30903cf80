#include "src/model/loaded_model.hpp"

#include <utility>

namespace tandem {

LoadedModel load_model(const std::filesystem::path& model_dir) {
  const ModelConfig config = read_model_config(model_dir);
  const ModelTensors tensors(model_dir);
  Arena memory(Weights::bytes(config), "model weights");
  Weights weights(config, memory.block());
  weights.load(tensors);
  return {config, std::move(memory), std::move(weights)};
}

}  // namespace tandem
