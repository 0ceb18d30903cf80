#include "src/mirror/rows.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/text.hpp"
#include "src/mirror/json_file.hpp"

namespace tandem::mirror {
namespace {

using nlohmann::json;

bool has(const json& row, const char* key) { return row.contains(key); }

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument(cat("`", key, "` is missing"));
  if (!found->is_string()) throw std::invalid_argument(cat("`", key, "` is no text"));
  return found->get<std::string>();
}

std::string text_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? "" : text_of(object, key);
}

const json& list_of(const json& row, const char* key) {
  if (!row[key].is_array() || row[key].empty())
    throw std::invalid_argument(cat("`", key, "` is no list, or empty"));
  return row[key];
}

// What a turn may hold; anything else might be something that the model should see.
void expect_keys(const json& turn, const std::vector<std::string>& known) {
  if (!turn.is_object()) throw std::invalid_argument("a turn is no object");
  for (const auto& [key, value] : turn.items()) {
    const bool no_calls = key == "tool_calls" && (value.is_null() || (value.is_array() && value.empty()));
    if (!no_calls && std::find(known.begin(), known.end(), key) == known.end())
      throw std::invalid_argument(cat("a turn's key `", key, "` is not supported"));
  }
}

Turn read_message(const json& message) {
  expect_keys(message, {"role", "content", "reasoning_content"});
  Turn turn{text_of(message, "role"), text_of(message, "content"), std::nullopt};
  if (turn.role != "system" && turn.role != "user" && turn.role != "assistant")
    throw std::invalid_argument(cat("the role `", turn.role, "` is not supported"));
  if (has(message, "reasoning_content") && !message["reasoning_content"].is_null()) {
    if (turn.role != "assistant") throw std::invalid_argument(cat("reasoning of the role `", turn.role, "`"));
    turn.reasoning = text_of(message, "reasoning_content");
  }
  return turn;
}

// Alpaca's and ShareGPT's rows may carry a system text beside their turns.
std::vector<Turn> with_system(const json& row, std::vector<Turn> turns) {
  const std::string system = text_or_empty(row, "system");
  if (system.empty()) return turns;
  if (std::any_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.role == "system"; }))
    throw std::invalid_argument("the row has `system` and a system turn");
  turns.insert(turns.begin(), {"system", system, std::nullopt});
  return turns;
}

std::vector<Turn> read_alpaca(const json& row) {
  if (has(row, "history") && !row["history"].empty())
    throw std::invalid_argument("`history` is not supported");
  std::string question = text_of(row, "instruction");
  const std::string input = text_or_empty(row, "input");
  if (!question.empty() && !input.empty()) question += "\n\n";
  question += input;
  return with_system(row,
                     {{"user", question, std::nullopt}, {"assistant", text_of(row, "output"), std::nullopt}});
}

std::vector<Turn> read_share_gpt(const json& row) {
  std::vector<Turn> turns;
  for (const json& message : list_of(row, "conversations")) {
    if (message.is_object() && !has(message, "from")) {
      turns.push_back(read_message(message));
      continue;
    }
    expect_keys(message, {"from", "value"});
    const std::string from = text_of(message, "from");
    const bool user = from == "human" || from == "user", answer = from == "gpt" || from == "assistant";
    if (!user && !answer && from != "system")
      throw std::invalid_argument(cat("from `", from, "` is not supported"));
    turns.push_back({user     ? "user"
                     : answer ? "assistant"
                              : "system",
                     text_of(message, "value"), std::nullopt});
  }
  return with_system(row, std::move(turns));
}

std::int64_t integer(const json& value, std::int64_t most, const char* what) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > most)
    throw std::invalid_argument(cat(what, " ", value.dump(), " is no integer from 0 to ", most));
  return value.get<std::int64_t>();
}

TokenisedRow read_tokenised(const json& row) {
  TokenisedRow out;
  for (const json& id : list_of(row, "ids"))
    out.ids.push_back(
        static_cast<std::int32_t>(integer(id, std::numeric_limits<std::int32_t>::max(), "the id")));
  for (const json& mark : list_of(row, "targets"))
    out.targets.push_back(static_cast<std::uint8_t>(integer(mark, 1, "the target mark")));
  if (out.ids.size() != out.targets.size()) throw std::invalid_argument("ids and targets differ in number");
  return out;
}

}  // namespace

std::variant<std::vector<Turn>, TokenisedRow> read_row(std::string_view line) {
  const json row = parse_json(line);
  if (!row.is_object()) throw std::invalid_argument("the row is no object");
  const bool messages = has(row, "messages"), prompt = has(row, "prompt") || has(row, "completion"),
             ids = has(row, "ids") || has(row, "targets"), alpaca = has(row, "instruction"),
             share_gpt = has(row, "conversations");
  if (messages + prompt + ids + alpaca + share_gpt != 1)
    throw std::invalid_argument("the row is in none of the known forms, or in several");
  if (has(row, "tools") && !row["tools"].empty()) throw std::invalid_argument("tools are not supported");
  if (ids) return read_tokenised(row);
  if (alpaca) return read_alpaca(row);
  if (share_gpt) return read_share_gpt(row);
  if (prompt)
    return std::vector<Turn>{{"user", text_of(row, "prompt"), std::nullopt},
                             {"assistant", text_of(row, "completion"), std::nullopt}};
  std::vector<Turn> turns;
  for (const json& message : list_of(row, "messages")) turns.push_back(read_message(message));
  return turns;
}

}  // namespace tandem::mirror
