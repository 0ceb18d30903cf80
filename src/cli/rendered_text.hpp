// Samples as people read them: what the token ids stand for, and which of them are scored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/samples.hpp"
#include "io/text/tokenizer.hpp"

namespace tandem {

// None where the folder has no tokenizer.json: rows that are tokenised already need none.
std::optional<Tokenizer> tokenizer_of(const std::filesystem::path& model_dir);

// "sample 4, line 7: 46 tokens, 12 scored, digest 6fa1..."; `index` is the sample's in its data set, from 0.
std::string sample_heading(std::int64_t index, const SampleSet& samples, std::int64_t i);

// The text of all tokens. In colour, scored ones are green and control tokens underlined; without, scored
// ones stand between the brackets U+27E6 and U+27E7. Without a tokenizer, and for ids it does not know, <id>.
std::string sample_text(const SampleSet& samples, std::int64_t i, const Tokenizer* tokenizer, bool colour);

// Bytes as they may be sent to a terminal: control characters (but newline and tab) and bytes that are no
// UTF-8 as \xNN.
std::string printable(std::string_view bytes);

// One token in quotes, newlines and tabs spelled out too: "\n".
std::string quoted_token(std::int64_t id, const Tokenizer* tokenizer);

}  // namespace tandem
