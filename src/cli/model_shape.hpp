// Shapes of the models that `init-model` makes: presets, config.json, the list of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace tandem {

struct ModelShape {
  std::string type = "qwen3";  // qwen3 | llama
  std::int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  std::int64_t vocab = 0;  // 0: the tokenizer's size, rounded up
  std::int64_t max_positions = 0;
  double rope_theta = 0.0, rms_eps = 0.0;
  double init_std = 0.0;  // 0: 1/sqrt(hidden)
  bool tied = true;
  DType dtype = DType::kBF16;
};

// Throws kUsage, listing the presets, for an unknown name.
ModelShape preset_shape(const std::string& name);

// Throws kUsage naming the option for sizes that make no model.
void check_shape(const ModelShape& shape);

// The text of config.json; bos and eos ids below 0 are left out.
std::string config_text(const ModelShape& shape, std::int64_t bos_id, std::int64_t eos_id);

// All tensors by their Hugging Face names, in the order of the computation.
std::vector<TensorSpec> tensor_specs(const ModelShape& shape);

}  // namespace tandem
