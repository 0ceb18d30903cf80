#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/clinical/clean_text.hpp"
#include "io/clinical/item_reader.hpp"
#include "io/clinical/json_fields.hpp"
#include "io/clinical/json_lines.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::json;

// The letter of the option at `index`; keys must be the letters in order, since the prompt shows them.
void check_key(const JsonFields& fields, const std::string& key, std::size_t index) {
  const std::string wanted(1, static_cast<char>('A' + index));
  if (key != wanted)
    fields.fail(cat("the options have the key ", json(key).dump(), " where ", wanted, " should be"));
}

std::vector<std::string> read_options(const JsonFields& fields) {
  constexpr std::size_t kMost = 26;
  std::vector<std::string> options;
  const json* value = fields.find("options");
  if (!value) fields.fail("the row has no options; is this the right source for the file?");
  const auto add = [&](const json& text) {
    if (!text.is_string())
      fields.fail(cat("option ", options.size() + 1, " is ", text.type_name(), ", not a text"));
    if (options.size() == kMost) fields.fail(cat("more than ", kMost, " options"));
    options.push_back(text.get<std::string>());
  };
  if (value->is_object()) {
    for (const auto& [key, text] : value->items()) {
      check_key(fields, key, options.size());
      add(text);
    }
    return options;
  }
  if (!value->is_array())
    fields.fail(cat("options is ", value->type_name(), ", neither an object nor a list"));
  for (const json& option : *value) {
    if (option.is_object() && option.contains("key") && option.contains("value")) {
      if (!option["key"].is_string()) fields.fail("an option's key is no text");
      check_key(fields, option["key"].get<std::string>(), options.size());
      add(option["value"]);
    } else {
      add(option);
    }
  }
  return options;
}

// The option that `answer_idx` (letter) and `answer` (text) name; none with the item's reason where they are
// absent or name none or two different ones.
std::optional<std::size_t> right_option(const JsonFields& fields, ClinicalItem& item) {
  const std::string letter = clean_text(fields.text_or_empty("answer_idx"));
  const std::string answer = clean_text(fields.text_or_empty("answer"));
  if (letter.empty() && answer.empty()) {
    item.reason = Reason::kNoAnswer;
    return std::nullopt;
  }
  const auto is_answer = [&](const std::string& option) { return clean_text(option) == answer; };
  if (letter.empty()) {
    const auto found = std::find_if(item.options.begin(), item.options.end(), is_answer);
    if (found != item.options.end()) return static_cast<std::size_t>(found - item.options.begin());
  } else if (letter.size() == 1 && letter[0] >= 'A') {
    const auto index = static_cast<std::size_t>(letter[0] - 'A');
    if (index < item.options.size() && (answer.empty() || is_answer(item.options[index]))) return index;
  }
  item.reason = Reason::kContradiction;
  return std::nullopt;
}

class MedqaReader : public ItemReader {
 public:
  explicit MedqaReader(const std::filesystem::path& file) : lines_(file) {}

  std::optional<ClinicalItem> next() override {
    const auto value = lines_.next();
    if (!value) return std::nullopt;
    const JsonFields fields(value->json, lines_.name(), value->line);
    ClinicalItem item;
    item.line = value->line;
    item.question = fields.text("question");
    item.options = read_options(fields);
    item.right_option = right_option(fields, item);
    return item;
  }

 private:
  JsonLines lines_;
};

}  // namespace

std::unique_ptr<ItemReader> read_medqa(const std::filesystem::path& file) {
  return std::make_unique<MedqaReader>(file);
}

}  // namespace tandem
