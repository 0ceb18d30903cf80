#include "io/text/text_tools.hpp"

#include <limits>
#include <set>
#include <utility>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

void add_eos_tokens(std::set<std::int32_t>& ids, const std::filesystem::path& file,
                    const nlohmann::json& value) {
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max())
      throw Error(ErrorKind::kInput,
                  cat(file.string(), ": eos_token_id = ", value.dump(), " is no token id"));
    ids.insert(id.get<std::int32_t>());
  }
}

}  // namespace

TextTools read_text_tools(const std::filesystem::path& model_dir, const std::string& template_name) {
  ChatTemplate chat_template =
      ChatTemplate::choose(model_dir, planted("generic_template") ? "chatml" : template_name);
  Tokenizer tokenizer = Tokenizer::load(model_dir);
  for (const auto token : chat_template.control_tokens())
    if (!tokenizer.added_token(token))
      throw Error(ErrorKind::kInput,
                  cat((model_dir / "tokenizer.json").string(), ": ", token,
                      " is no added token, but the template ", chat_template.name(), " needs it"));
  return {std::move(tokenizer), std::move(chat_template)};
}

std::string_view first_added(const Tokenizer& tokenizer, std::string_view text, std::span<const Span> spans) {
  for (const Span token : tokenizer.find_added(text))
    if (touches(token, spans)) return text.substr(token.begin, token.end - token.begin);
  return {};
}

std::vector<std::uint8_t> marks_of(std::span<const std::size_t> first_byte, std::span<const Span> spans) {
  std::vector<std::uint8_t> marks;
  marks.reserve(first_byte.size());
  auto span = spans.begin();
  for (const std::size_t at : first_byte) {
    while (span != spans.end() && span->end <= at) ++span;
    marks.push_back(span != spans.end() && span->begin <= at);
  }
  return marks;
}

std::vector<std::int32_t> stop_tokens(const std::filesystem::path& model_dir, const TextTools& tools) {
  std::set<std::int32_t> ids = {tools.tokenizer.added_token(kEndOfTurn).value()};
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto file = model_dir / name;
    if (!std::filesystem::exists(file)) continue;
    const nlohmann::json config = read_strict_json(file);
    if (!config.is_object() || !config.contains("eos_token_id") || config["eos_token_id"].is_null()) continue;
    add_eos_tokens(ids, file, config["eos_token_id"]);
    break;
  }
  return {ids.begin(), ids.end()};
}

}  // namespace tandem
