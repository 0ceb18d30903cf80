#include "src/mirror/chat_template.hpp"

#include <algorithm>

#include "src/base/error.hpp"
#include "src/mirror/json_file.hpp"

namespace tandem::mirror {
namespace {

constexpr const char* kSmolLm2System = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

bool has_all(const std::string& text, std::initializer_list<const char*> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

// What a template writes beyond its tags, and how often it writes: one that has a known template's features
// and writes more besides is another template.
struct Outputs {
  int expressions = 0;
  bool only_tags = true;
};

Outputs outputs_of(const std::string& text) {
  Outputs found;
  for (std::size_t i = 0; i < text.size();) {
    const std::string open = text.substr(i, 2);
    const std::string close = open == "{{" ? "}}" : open == "{%" ? "%}" : open == "{#" ? "#}" : "";
    if (close.empty()) {
      found.only_tags &= text[i] == ' ' || text[i] == '\n';
      ++i;
      continue;
    }
    found.expressions += open == "{{";
    const auto end = text.find(close, i + 2);
    if (end == std::string::npos) return {0, false};
    i = end + 2;
  }
  return found;
}

bool writes(const std::string& text, int expressions) {
  const Outputs found = outputs_of(text);
  return found.only_tags && found.expressions == expressions;
}

// Qwen's own spelling of its rules: which turn is the last question, where reasoning is kept, what surrounds
// it.
bool is_qwen3(const std::string& t) {
  return writes(t, 26) &&
         has_all(t, {"messages[::-1]", "ns.last_query_index = index", "message.reasoning_content",
                     "content.startswith('<tool_response>')",
                     "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')",
                     "content.split('</think>')[-1].lstrip('\\n')", "if loop.index0 > ns.last_query_index",
                     "if loop.last or (not loop.last and reasoning_content)",
                     "'<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + "
                     "'\\n</think>\\n\\n' + content.lstrip('\\n')",
                     "'<|im_start|>' + message.role + '\\n' + content", "'<|im_end|>\\n'"});
}

// The same rules as `tandem init-model` spells them.
bool is_init_model(const std::string& t) {
  return writes(t, 4) &&
         has_all(t, {"turn.content.startswith('<tool_response>')", "set last.question = loop.index0",
                     "if turn.reasoning_content is string",
                     "parts[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')", "parts[-1].lstrip('\\n')",
                     "if loop.index0 > last.question and (loop.last or thought)",
                     "'<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' ~ said.lstrip('\\n')",
                     "'<|im_start|>' ~ turn.role ~ '\\n' ~ said ~ '<|im_end|>\\n'"});
}

// SmolLM2's template has real line ends within its quotes.
bool is_smollm2(const std::string& t) {
  return writes(t, 3) &&
         has_all(t, {"if loop.first and messages[0]['role'] != 'system'", kSmolLm2System,
                     "'<|im_start|>' + message['role'] + '", "message['content'] + '<|im_end|>'"}) &&
         !has_all(t, {"think"}) && !has_all(t, {"tool"});
}

// ChatML and nothing else: no default system turn, no reasoning, no tools.
bool is_chatml(const std::string& t) {
  const bool turns =
      has_all(t, {"'<|im_start|>' + message['role'] + '", "message['content'] + '<|im_end|>'"});
  const bool more = has_all(t, {"think"}) || has_all(t, {"tool"}) || has_all(t, {"system"}) ||
                    has_all(t, {"trim"}) || has_all(t, {"strip"}) || has_all(t, {"bos_token"});
  return turns && !more && (writes(t, 1) || writes(t, 2));  // with and without a generation prompt
}

std::string without_leading_line_ends(const std::string& text) {
  const auto first = text.find_first_not_of('\n');
  return first == std::string::npos ? "" : text.substr(first);
}

std::string without_trailing_line_ends(const std::string& text) {
  const auto last = text.find_last_not_of('\n');
  return last == std::string::npos ? "" : text.substr(0, last + 1);
}

struct Said {
  std::string reasoning, content;
};

// An assistant turn's reasoning, from its own field or from <think> tags within its content.
Said take_apart(const Turn& turn) {
  if (turn.reasoning) return {*turn.reasoning, turn.content};
  const std::string open = "<think>", close = "</think>";
  const auto first = turn.content.find(close), last = turn.content.rfind(close);
  if (first == std::string::npos) return {"", turn.content};
  std::string before = without_trailing_line_ends(turn.content.substr(0, first));
  if (const auto begin = before.rfind(open); begin != std::string::npos)
    before = before.substr(begin + open.size());
  return {without_leading_line_ends(before),
          without_leading_line_ends(turn.content.substr(last + close.size()))};
}

bool answers_tool(const std::string& content) {
  return content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
}

// Index of the last turn of a user that is no tool's answer; the last turn's where there is none.
std::size_t last_question(const std::vector<Turn>& turns) {
  for (std::size_t i = turns.size(); i-- > 0;)
    if (turns[i].role == "user" && !answers_tool(turns[i].content)) return i;
  return turns.size() - 1;
}

void render_qwen3_answer(const std::vector<Turn>& turns, std::size_t i, bool target,
                         std::vector<Part>& parts) {
  const Said said = take_apart(turns[i]);
  const bool is_last = i + 1 == turns.size();
  if (i > last_question(turns) && (is_last || !said.reasoning.empty())) {
    const std::string reasoning = without_leading_line_ends(without_trailing_line_ends(said.reasoning));
    const bool thinks = target && !reasoning.empty();  // an empty block is the generation prompt's
    parts.push_back({"<think>\n", thinks, false});
    parts.push_back({reasoning, thinks, true});
    parts.push_back({"\n</think>\n\n", thinks, false});
    parts.push_back({without_leading_line_ends(said.content), target, true});
  } else {
    parts.push_back({said.content, target, true});
  }
}

}  // namespace

std::optional<std::string> own_template(const std::filesystem::path& model) {
  const auto file = model / "chat_template.jinja", config_file = model / "tokenizer_config.json";
  if (std::filesystem::exists(file)) return read_text_file(file);
  if (!std::filesystem::exists(config_file)) return std::nullopt;
  const auto config = read_json_file(config_file);
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"].is_null())
    return std::nullopt;
  const auto& found = config["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  // Named ones: the default is used where none is asked for.
  if (found.is_array())
    for (const auto& one : found)
      if (one.is_object() && one.value("name", nlohmann::json()) == "default" && one.contains("template") &&
          one["template"].is_string())
        return one["template"].get<std::string>();
  throw Error(ErrorKind::kInput, cat(config_file.string(), ": chat_template is no text, nor has a default"));
}

ChatTemplate choose_template(const std::string& name, const std::optional<std::string>& own,
                             const std::filesystem::path& model) {
  if (name == "qwen3") return ChatTemplate::kQwen3;
  if (name == "smollm2") return ChatTemplate::kSmolLm2;
  if (name == "chatml") return ChatTemplate::kChatMl;
  if (name != "auto") throw Error(ErrorKind::kUsage, cat("mirror: data.template = ", name, " is not known"));
  if (!own)
    throw Error(ErrorKind::kInput, cat(model.string(), ": the model has no chat template of its own"));
  if (is_qwen3(*own) || is_init_model(*own)) return ChatTemplate::kQwen3;
  if (is_smollm2(*own)) return ChatTemplate::kSmolLm2;
  if (is_chatml(*own)) return ChatTemplate::kChatMl;
  throw Error(ErrorKind::kInput,
              cat(model.string(),
                  ": the mirror does not know the model's chat template; it knows Qwen3's, SmolLM2's "
                  "and plain ChatML"));
}

std::vector<std::string> control_tokens(ChatTemplate which) {
  if (which == ChatTemplate::kQwen3) return {"<|im_start|>", "<|im_end|>", "<think>", "</think>"};
  return {"<|im_start|>", "<|im_end|>"};
}

std::vector<Part> render(ChatTemplate which, const std::vector<Turn>& turns, bool last_only) {
  std::size_t last_answer = turns.size();
  for (std::size_t i = 0; i < turns.size(); ++i)
    if (turns[i].role == "assistant") last_answer = i;
  std::vector<Part> parts;
  if (which == ChatTemplate::kSmolLm2 && !turns.empty() && turns.front().role != "system")
    parts.push_back({std::string("<|im_start|>system\n") + kSmolLm2System + "<|im_end|>\n"});
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    const bool target = turn.role == "assistant" && (!last_only || i == last_answer);
    parts.push_back({"<|im_start|>" + turn.role + "\n"});
    if (which == ChatTemplate::kQwen3 && turn.role == "assistant")
      render_qwen3_answer(turns, i, target, parts);
    else
      parts.push_back({turn.content, target, true});
    parts.push_back({"<|im_end|>", target, false});
    parts.push_back({"\n"});
  }
  return parts;
}

}  // namespace tandem::mirror
