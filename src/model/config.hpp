// A model's shape and constants, from its Hugging Face config.json (SPEC.md, "Model").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "kernels/rope.hpp"

namespace tandem {

struct ModelConfig {
  std::string model_type;       // "qwen3" | "llama"
  std::int64_t vocab_size = 0;  // V: rows of the head, more than the tokenizer's tokens in some models
  std::int64_t hidden = 0;      // C
  std::int64_t intermediate = 0;  // I
  std::int64_t n_layers = 0;
  HeadShape heads;
  std::int64_t max_positions = 0;
  double rms_eps = 1e-6;
  double rope_theta = 1e4;
  bool qk_norm = false;       // RMSNorm over head_dim on queries and keys
  bool tied_head = false;     // the head is the embedding

  // One JSON object of the values above: the trajectory's /load/config.
  std::string echo() const;
};

// Throws kInput, naming file and key, for what is missing, does not fit together, or asks for something that this
// program does not compute (rope scaling, biases, sliding windows, other activations, quantisation): refused, never
// ignored.
ModelConfig read_model_config(const std::filesystem::path& model_dir);

}  // namespace tandem
