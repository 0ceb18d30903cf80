// How tokenizers cut text into pieces before merging: published regular expressions, written out as scanners.
// A tokenizer.json names its own; one that is not here is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::mirror {

enum class Split {
  kGpt2,    // Radford et al. 2019, as published with the model: byte-level tokenizers' default
  kQwen2,   // single digits, line ends with what they follow; Qwen3 too
  kLlama3,  // as Qwen2 with up to three digits
  kDigits,  // each number on its own
};

// The pieces, in order; together they are the text.
std::vector<std::string_view> split(Split how, std::string_view text);

// The `pre_tokenizer` of a tokenizer.json as splits in their order; the last part must be ByteLevel. Throws
// std::invalid_argument naming what it does not know.
std::vector<Split> read_splits(const nlohmann::json& pre_tokenizer);

}  // namespace tandem::mirror
