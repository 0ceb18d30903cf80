// A row of a data file (SPEC.md, "Rendering"): JSON with messages; prompt and completion; Alpaca's
// instruction, input and output; ShareGPT's conversations; or ids and targets.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "src/mirror/chat_template.hpp"

namespace tandem::mirror {

struct TokenisedRow {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
};

// Throws std::invalid_argument with what is wrong.
std::variant<std::vector<Turn>, TokenisedRow> read_row(std::string_view line);

}  // namespace tandem::mirror
