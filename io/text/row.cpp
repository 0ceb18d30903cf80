#include "io/text/row.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::json;

class RowReader {
 public:
  RowReader(const std::string& file, std::int64_t line) : file_(file), line_(line) {}

  Row read(const json& object) const {
    if (!object.is_object()) fail(cat("a row is a JSON object, not ", object.type_name()));
    Row row;
    row.form = form_of(object);
    if (const auto tools = object.find("tools");
        tools != object.end() && !tools->is_null() && !tools->empty())
      fail("tools are not supported");
    switch (row.form) {
      case RowForm::kTokenised:
        read_tokenised(object, row);
        break;
      case RowForm::kPair:
        row.messages = {{"user", text(object, "prompt", "the row"), {}},
                        {"assistant", text(object, "completion", "the row"), {}}};
        break;
      case RowForm::kAlpaca:
        read_alpaca(object, row);
        break;
      case RowForm::kShareGpt:
        read_sharegpt(object, row);
        break;
      case RowForm::kMessages:
        for_each(object, "messages", [&](const json& message, const std::string& where) {
          row.messages.push_back(read_message(message, where));
        });
    }
    return row;
  }

  // The answer may lack, and is left out where it does not.
  Row read_prompt(json object) const {
    if (object.is_object()) {
      if (object.contains("prompt")) object.emplace("completion", "");
      if (object.contains("instruction")) object.emplace("output", "");
      if (object.contains("ids") && object["ids"].is_array())
        object.emplace("targets", std::vector<unsigned>(object["ids"].size(), 0));
    }
    Row row = read(object);
    if (row.tokenised()) return row;
    if (row.messages.back().role == "assistant") row.messages.pop_back();
    if (row.messages.empty()) fail("the conversation has no turn to answer");
    return row;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInput, cat(file_, " line ", line_, ": ", what));
  }

  RowForm form_of(const json& object) const {
    const auto any = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return object.contains(key); });
    };
    std::vector<RowForm> forms;
    if (any({"messages"})) forms.push_back(RowForm::kMessages);
    if (any({"prompt", "completion"})) forms.push_back(RowForm::kPair);
    if (any({"ids", "targets"})) forms.push_back(RowForm::kTokenised);
    if (any({"instruction"})) forms.push_back(RowForm::kAlpaca);
    if (any({"conversations"})) forms.push_back(RowForm::kShareGpt);
    if (forms.size() != 1)
      fail(
          "a row has either messages, or prompt and completion, or ids and targets, or instruction and "
          "output "
          "(Alpaca), or conversations (ShareGPT)");
    return forms[0];
  }

  // `what(element, where)` for each of a list that must have some.
  template <class What>
  void for_each(const json& object, const char* key, const What& what) const {
    const json& list = object[key];
    if (!list.is_array() || list.empty()) fail(cat(key, " is no list, or empty"));
    for (std::size_t i = 0; i < list.size(); ++i) what(list[i], cat("message ", i + 1));
  }

  std::string text(const json& object, const char* key, const std::string& where) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(cat(where, " has no ", key));
    if (!found->is_string()) fail(cat(where, ": ", key, " is ", found->type_name(), ", not a text"));
    return found->get<std::string>();
  }

  Message read_message(const json& object, const std::string& where) const {
    if (!object.is_object()) fail(cat(where, " is no JSON object"));
    for (const auto& [key, value] : object.items()) {
      const bool empty = value.is_null() || (value.is_array() && value.empty());
      if (key == "tool_calls" && empty) continue;
      if (key != "role" && key != "content" && key != "reasoning_content")
        fail(cat(where, ": the key ", json(key).dump(),
                 " is not supported (role, content, reasoning_content are)"));
    }
    Message message{text(object, "role", where), text(object, "content", where), {}};
    if (object.contains("reasoning_content") && !object["reasoning_content"].is_null())
      message.reasoning_content = text(object, "reasoning_content", where);
    return message;
  }

  // "" where it is absent or null.
  std::string text_or_empty(const json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? "" : text(object, key, "the row");
  }

  void read_system(const json& object, Row& row) const {
    if (std::string system = text_or_empty(object, "system"); !system.empty())
      row.messages.push_back({"system", std::move(system), {}});
  }

  void read_alpaca(const json& object, Row& row) const {
    if (const auto history = object.find("history");
        history != object.end() && !history->is_null() && !history->empty())
      fail("history is not supported; write earlier turns as messages");
    read_system(object, row);
    const std::string input = text_or_empty(object, "input");
    std::string user = text(object, "instruction", "the row");
    if (!input.empty()) user += (user.empty() ? "" : "\n\n") + input;
    row.messages.push_back({"user", std::move(user), {}});
    row.messages.push_back({"assistant", text(object, "output", "the row"), {}});
  }

  void read_sharegpt(const json& object, Row& row) const {
    read_system(object, row);
    const bool has_system = !row.messages.empty();
    for_each(object, "conversations", [&](const json& turn, const std::string& where) {
      const bool own = turn.is_object() && turn.contains("from");
      row.messages.push_back(own ? read_turn(turn, where) : read_message(turn, where));
      if (has_system && row.messages.back().role == "system")
        fail(cat(where, " is a system turn, but the row has system too"));
    });
  }

  Message read_turn(const json& object, const std::string& where) const {
    for (const auto& [key, value] : object.items())
      if (key != "from" && key != "value")
        fail(cat(where, ": the key ", json(key).dump(), " is not supported (from, value are)"));
    const std::string from = text(object, "from", where);
    if (from == "human" || from == "user") return {"user", text(object, "value", where), {}};
    if (from == "gpt" || from == "assistant") return {"assistant", text(object, "value", where), {}};
    if (from == "system") return {"system", text(object, "value", where), {}};
    fail(cat(where, ": from = ", json(from).dump(),
             " is not supported (system, human, user, gpt, assistant are)"));
  }

  void read_tokenised(const json& object, Row& row) const {
    row.ids = numbers<std::int32_t>(object, "ids", std::numeric_limits<std::int32_t>::max());
    row.targets = numbers<std::uint8_t>(object, "targets", 1);
    if (row.ids.empty()) fail("ids is empty");
    if (row.ids.size() != row.targets.size())
      fail(cat(row.ids.size(), " ids, but ", row.targets.size(),
               " targets; one target mark (0 or 1) for each id"));
  }

  template <class T>
  std::vector<T> numbers(const json& object, const char* key, std::int64_t high) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) fail(cat("the row has no list ", key));
    std::vector<T> list;
    list.reserve(found->size());
    for (const json& number : *found) {
      const bool good =
          number.is_number_unsigned() && number.get<std::uint64_t>() <= static_cast<std::uint64_t>(high);
      if (!good) fail(cat(key, "[", list.size(), "] = ", number.dump(), " is no integer from 0 to ", high));
      list.push_back(number.get<T>());
    }
    return list;
  }

  const std::string& file_;
  std::int64_t line_;
};

}  // namespace

Row parse_row(std::string_view text, const std::string& file, std::int64_t line) {
  return RowReader(file, line).read(parse_strict_json(text, file, line));
}

Row parse_prompt(std::string_view text, const std::string& file, std::int64_t line) {
  return RowReader(file, line).read_prompt(parse_strict_json(text, file, line));
}

}  // namespace tandem
