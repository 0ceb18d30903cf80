// One row of a JSONL file as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"

namespace tandem {

// How a row is written, told by its keys; exactly one form must fit.
enum class RowForm {
  kMessages,   // messages: [{role, content}, ...]
  kPair,       // prompt, completion: a user and an assistant turn
  kTokenised,  // ids, targets
  // instruction, input, output, as Alpaca has them: a user turn (instruction, a blank line and input, where
  // input is not empty) and an assistant turn.
  kAlpaca,
  // conversations: [{from, value}, ...], as ShareGPT has them; human or user is the user, gpt or assistant
  // the assistant. Items may be {role, content} too.
  kShareGpt,
};

// Either a conversation or, for kTokenised, a tokenised sample. In the last two forms `system` may be a
// system turn.
struct Row {
  RowForm form = RowForm::kMessages;
  std::vector<Message> messages;
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // 0 or 1

  bool tokenised() const { return form == RowForm::kTokenised; }
};

// Other keys of the row are ignored, those of a message refused: they might carry what the model should see.
// Throws kInput naming file and line (and column, for bad JSON).
Row parse_row(std::string_view text, const std::string& file, std::int64_t line);

// What an answer is asked for: a row of any form, whose answer (completion, output, targets, a last message
// of the assistant) may lack and is left out. Throws as parse_row does, and where no message is left.
Row parse_prompt(std::string_view text, const std::string& file, std::int64_t line);

}  // namespace tandem
