// `tandem init-model`: a Hugging Face folder with random weights, to try things without a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace tandem {

struct InitModelOptions {
  std::string preset = "tiny";           // tiny | smollm2-135m | qwen3-0.6b
  std::uint64_t seed = 0;                // the same seed, sizes and dtype give the same bytes on any machine
  std::filesystem::path tokenizer = {};  // folder with tokenizer.json; empty: our byte-level one is written
  std::filesystem::path out = {};        // created with its parents; must be absent or empty
  std::string dtype = {};                // F32 | BF16; empty: the preset's (tiny: F32, the others BF16)

  // Instead of the preset's values.
  std::optional<std::string> type = {};  // qwen3 | llama
  std::optional<std::int64_t> hidden = {}, layers = {}, heads = {}, kv_heads = {}, head_dim = {},
                              intermediate = {}, vocab = {};
  std::optional<bool> tied = {};
};

// Writes config.json, model.safetensors and the tokenizer's files as one published folder (io/publish.hpp),
// says on `out` in one line what it made, and returns 0. Throws kUsage for values that do not fit, kInput for
// files.
int init_model_command(const InitModelOptions& options, std::ostream& out);

}  // namespace tandem
