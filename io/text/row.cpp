#include "io/text/row.hpp"

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
    const bool conversation = object.contains("messages");
    const bool pair = object.contains("prompt") || object.contains("completion");
    const bool tokenised = object.contains("ids") || object.contains("targets");
    if (conversation + pair + tokenised != 1)
      fail("a row has either messages, or prompt and completion, or ids and targets");
    if (const auto tools = object.find("tools");
        tools != object.end() && !tools->is_null() && !tools->empty())
      fail("tools are not supported");
    if (tokenised) return read_tokenised(object);
    Row row;
    if (pair) {
      row.messages = {{"user", text(object, "prompt", "the row"), {}},
                      {"assistant", text(object, "completion", "the row"), {}}};
      return row;
    }
    const json& messages = object["messages"];
    if (!messages.is_array() || messages.empty()) fail("messages is no list, or empty");
    for (std::size_t i = 0; i < messages.size(); ++i)
      row.messages.push_back(read_message(messages[i], cat("message ", i + 1)));
    return row;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInput, cat(file_, " line ", line_, ": ", what));
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

  Row read_tokenised(const json& object) const {
    Row row;
    row.tokenised = true;
    row.ids = numbers<std::int32_t>(object, "ids", std::numeric_limits<std::int32_t>::max());
    row.targets = numbers<std::uint8_t>(object, "targets", 1);
    if (row.ids.empty()) fail("ids is empty");
    if (row.ids.size() != row.targets.size())
      fail(cat(row.ids.size(), " ids, but ", row.targets.size(),
               " targets; one target mark (0 or 1) for each id"));
    return row;
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

}  // namespace tandem
