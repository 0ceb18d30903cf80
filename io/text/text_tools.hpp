// What a model's folder holds for text: its tokenizer and its chat template, fitting each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/span.hpp"
#include "io/text/tokenizer.hpp"

namespace tandem {

struct TextTools {
  Tokenizer tokenizer;
  ChatTemplate chat_template;
};

// template_name: data.template. Throws kInput, also where the tokenizer lacks a control token of the
// template.
TextTools read_text_tools(const std::filesystem::path& model_dir, const std::string& template_name);

// The first added token in `text` that touches one of `spans`; "" if there is none.
std::string_view first_added(const Tokenizer& tokenizer, std::string_view text, std::span<const Span> spans);

// One mark for each token: 1 where its first byte lies in one of `spans` (sorted, not overlapping).
std::vector<std::uint8_t> marks_of(std::span<const std::size_t> first_byte, std::span<const Span> spans);

// The tokens that end an answer: the template's end of turn, and eos_token_id (one or a list) of
// generation_config.json or, without that, of config.json. Ascending. Throws kInput for an eos_token_id that
// is neither.
std::vector<std::int32_t> stop_tokens(const std::filesystem::path& model_dir, const TextTools& tools);

}  // namespace tandem
