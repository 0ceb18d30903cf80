// The linear modules of a transformer layer, in the groups whose weights are fused into one matrix.
// Everything that knows how q, k, v or gate and up share a matrix is here: loading, adapters, forward,
// backward, export.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/model/config.hpp"

namespace tandem {

enum Group : int { kQkv = 0, kOut = 1, kGateUp = 2, kDown = 3 };
inline constexpr int kGroups = 4;

struct Module {
  std::string_view target;  // as in lora.targets: "q"
  std::string_view path;    // inside the layer: "self_attn.q_proj"
  Group group;
  std::int64_t row_begin, row_end;  // its rows (outputs) in the group's fused weight
  std::int64_t out() const { return row_end - row_begin; }
};

struct LayerShape {
  explicit LayerShape(const ModelConfig& config);

  std::array<std::int64_t, kGroups> in{}, out{};  // of the fused weight [out, in]
  std::vector<Module> modules;                    // q, k, v, o, gate, up, down
};

// "model.layers.3.self_attn.q_proj"
std::string module_name(std::int64_t layer, const Module& module);

}  // namespace tandem
