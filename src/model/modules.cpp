#include "src/model/modules.hpp"

#include "src/base/text.hpp"

namespace tandem {

LayerShape::LayerShape(const ModelConfig& config) {
  const std::int64_t q = config.heads.q_cols(), kv = config.heads.kv_cols();
  const std::int64_t c = config.hidden, i = config.intermediate;
  in = {c, q, c, i};
  out = {q + 2 * kv, c, 2 * i, c};
  modules = {
      {"q", "self_attn.q_proj", kQkv, 0, q},
      {"k", "self_attn.k_proj", kQkv, q, q + kv},
      {"v", "self_attn.v_proj", kQkv, q + kv, q + 2 * kv},
      {"o", "self_attn.o_proj", kOut, 0, c},
      {"gate", "mlp.gate_proj", kGateUp, 0, i},
      {"up", "mlp.up_proj", kGateUp, i, 2 * i},
      {"down", "mlp.down_proj", kDown, 0, c},
  };
}

std::string module_name(std::int64_t layer, const Module& module) {
  return cat("model.layers.", layer, ".", module.path);
}

}  // namespace tandem
