// A model's config.json (SPEC.md, "Model"). What the mirror does not compute is refused by name, never
// ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/mirror/operations.hpp"

namespace tandem::mirror {

struct Config {
  std::string model_type;  // qwen3, qwen2, llama
  std::int64_t vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads, head_dim;
  double rms_norm_eps, rope_theta;
  std::optional<RopeScaling> rope_scaling;  // Llama 3's
  bool tied_head;
  std::int64_t max_position_embeddings = 0;

  bool qk_norm() const { return model_type == "qwen3"; }
  bool qkv_bias() const { return model_type == "qwen2"; }
  // JSON with sorted keys; a trajectory's /load/config.
  std::string echo() const;
};

Config read_config(const std::filesystem::path& file);

}  // namespace tandem::mirror
