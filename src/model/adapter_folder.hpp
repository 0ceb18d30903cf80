// A PEFT adapter's folder as this program computes with it: settings, layout, values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/adapter.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"

namespace tandem {

struct LoadedAdapter {
  AdapterConfig config;  // target_modules in the order of the layer's modules
  LoraLayout layout;
  std::vector<float> values;  // flat array of the layout

  std::vector<AdapterTensor> tensors() const { return layout.views(values); }
  std::int64_t n_modules() const { return static_cast<std::int64_t>(layout.tensors().size()) / 2; }
  // Modules that change the model: those whose B is not zero.
  std::int64_t n_active() const;
  // "rank 8, alpha 16, 28 of 28 modules active"
  std::string text() const;
};

// Rank, scale and targets are the folder's own. Throws kInput unless its tensors are exactly A and B of its
// target modules in every layer of this model, with the shapes the model asks for.
LoadedAdapter load_adapter(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace tandem
