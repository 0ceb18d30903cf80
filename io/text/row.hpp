// One row of a JSONL file as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"

namespace tandem {

// Either a conversation (`messages`, or `prompt` and `completion` as a user and an assistant turn) or a
// tokenised sample (`ids`, `targets`).
struct Row {
  bool tokenised = false;
  std::vector<Message> messages;
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // 0 or 1
};

// Other keys of the row are ignored, those of a message refused: they might carry what the model should see.
// Throws kInput naming file and line (and column, for bad JSON).
Row parse_row(std::string_view text, const std::string& file, std::int64_t line);

}  // namespace tandem
