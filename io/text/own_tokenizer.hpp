// A tokenizer for models made here: one token per byte, then Qwen3's 26 added tokens, and a chat template of
// our own wording that renders as Qwen3's does.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tandem {

struct OwnTokenizer {
  std::int64_t vocab_size = 0;  // ids 0..vocab_size-1 are all in use
  std::int32_t eos_id = 0;      // <|im_end|>
  std::int32_t pad_id = 0;      // <|endoftext|>
};

// Writes tokenizer.json and tokenizer_config.json into `dir`, which must exist. Throws kInput naming the file
// that cannot be written.
OwnTokenizer write_byte_level_tokenizer(const std::filesystem::path& dir);

}  // namespace tandem
