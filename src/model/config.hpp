// A model's shape and constants, from its Hugging Face config.json (SPEC.md, "Model").
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/rope.hpp"

namespace tandem {

struct ModelConfig {
  std::string model_type;         // "qwen3" | "qwen2" | "llama"
  std::int64_t vocab_size = 0;    // V: rows of the head, more than the tokenizer's tokens in some models
  std::int64_t hidden = 0;        // C
  std::int64_t intermediate = 0;  // I
  std::int64_t n_layers = 0;
  HeadShape heads;
  std::int64_t max_positions = 0;
  double rms_eps = 1e-6;
  double rope_theta = 1e4;
  // Llama 3's scaling of the rotary frequencies (its published configuration and code).
  struct Llama3Rope {
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 1.0, original_positions = 1.0;
  };
  std::optional<Llama3Rope> llama3_rope;
  bool qk_norm = false;    // RMSNorm over head_dim on queries and keys
  bool qkv_bias = false;   // biases on the query, key and value projections (Qwen2)
  bool tied_head = false;  // the head is the embedding

  // One JSON object of the values above: the trajectory's /load/config.
  std::string echo() const;
};

// Throws kInput, naming file and key, for what is missing, does not fit together, or asks for something that
// this program does not compute (rope scaling, biases, sliding windows, other activations, quantisation):
// refused, never ignored.
ModelConfig read_model_config(const std::filesystem::path& model_dir);

// The rotary frequencies theta^(-2i/D), i = 0..D/2-1, after the scaling that the configuration asks for.
// Llama 3: a wavelength above original_positions/low_freq_factor is divided by the factor, one below
// original_positions/high_freq_factor is left alone, between them the two are mixed linearly.
std::vector<double> rope_frequencies(const ModelConfig& config);

}  // namespace tandem
