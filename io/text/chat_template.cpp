#include "io/text/chat_template.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

struct Known {
  std::string_view digest;
  TemplateKind kind;
  std::string_view what;
};

constexpr std::array<Known, 4> kKnown = {{
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", TemplateKind::kQwen3, "Qwen3"},
    {"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", TemplateKind::kQwen3,
     "Qwen3, later revision"},
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", TemplateKind::kSmolLm2, "SmolLM2"},
    {"56961ca76ef177f9d33f1c8943bb772bf205fabc676ae44c1c8b7570f3814ce8", TemplateKind::kQwen3,
     "tandem init-model"},
}};

struct Named {
  std::string_view name;
  TemplateKind kind;
};

constexpr std::array<Named, 3> kNamed = {{
    {"qwen3", TemplateKind::kQwen3},
    {"smollm2", TemplateKind::kSmolLm2},
    {"chatml", TemplateKind::kChatMl},
}};

constexpr std::string_view kSmolLm2System =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";

const Known* find_known(const std::string& digest) {
  const auto found =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.digest == digest; });
  return found == kKnown.end() ? nullptr : &*found;
}

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kInput, what); }

std::string_view strip_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

// The text under construction and where its parts come from.
class Page {
 public:
  Page& fixed(std::string_view text) {
    rendered_.text += text;
    return *this;
  }
  Page& own(std::string_view text) {
    if (!text.empty()) rendered_.own.push_back({at(), at() + text.size()});
    return fixed(text);
  }
  Page& header(std::string_view role) { return fixed("<|im_start|>").fixed(role).fixed("\n"); }
  // Ends a turn; from `begin` to the end-of-turn token, that included, it is a target.
  void end_target(std::size_t begin) {
    fixed(kEndOfTurn);
    rendered_.targets.push_back({begin, at()});
    fixed("\n");
  }
  void end() { fixed(kEndOfTurn).fixed("\n"); }
  std::size_t at() const { return rendered_.text.size(); }
  Rendered& rendered() { return rendered_; }

 private:
  Rendered rendered_;
};

// An assistant's message as Qwen3's template takes it apart.
struct Parts {
  std::string_view reasoning, content;
  bool text_dropped = false;
};

Parts take_apart(const Message& message) {
  if (message.reasoning_content) return {*message.reasoning_content, message.content, false};
  const std::string_view all = message.content;
  const auto first = all.find(kEndThink);
  if (first == std::string_view::npos) return {"", all, false};
  const auto last = all.rfind(kEndThink);
  const std::string_view head = strip_right(all.substr(0, first));
  const auto open = head.rfind(kThink);
  const auto begin = open == std::string_view::npos ? 0 : open + kThink.size();
  const std::string_view before = head.substr(0, open == std::string_view::npos ? 0 : open);
  const std::string_view between =
      last == first ? "" : all.substr(first + kEndThink.size(), last - first - kEndThink.size());
  return {strip_left(head.substr(begin)), strip_left(all.substr(last + kEndThink.size())),
          !strip(before).empty() || !strip(between).empty()};
}

bool is_question(const Message& message) {
  return message.role == "user" &&
         !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
}

// Index of the last question; answers behind it show their reasoning. Without one: the last message.
std::size_t last_question(std::span<const Message> messages) {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (is_question(messages[i])) return i;
  return messages.size() - 1;
}

std::optional<std::size_t> last_answer(std::span<const Message> messages) {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (messages[i].role == "assistant") return i;
  return std::nullopt;
}

void qwen3_answer(Page& page, const Message& message, bool after_question, bool last, bool target) {
  const Parts parts = take_apart(message);
  const std::string_view reasoning = strip(parts.reasoning);
  page.header(message.role);
  std::size_t begin = page.at();
  if (after_question && (last || !parts.reasoning.empty())) {
    page.fixed(kThink).fixed("\n").own(reasoning).fixed("\n").fixed(kEndThink).fixed("\n\n");
    // At inference the generation prompt supplies an empty block.
    if (reasoning.empty()) begin = page.at();
    page.own(strip_left(parts.content));
  } else {
    page.own(parts.content);
    page.rendered().reasoning_dropped += !reasoning.empty();
  }
  page.rendered().text_dropped += parts.text_dropped;
  target ? page.end_target(begin) : page.end();
}

void plain_answer(Page& page, const Message& message, bool target) {
  page.header(message.role);
  const std::size_t begin = page.at();
  page.own(message.content);
  page.rendered().reasoning_dropped +=
      message.reasoning_content && !strip(*message.reasoning_content).empty();
  target ? page.end_target(begin) : page.end();
}

void check(std::span<const Message> messages) {
  if (messages.empty()) fail("the conversation has no messages");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      fail(cat("message ", i + 1, ": role \"", message.role,
               "\" is not supported (system, user, assistant are)"));
    if (message.reasoning_content && message.role != "assistant")
      fail(cat("message ", i + 1, ": reasoning_content in a ", message.role,
               " message; only an assistant's can have it"));
  }
}

}  // namespace

Rendered ChatTemplate::render(std::span<const Message> messages, const PromptOptions& options) const {
  check(messages);
  Page page;
  const std::size_t question = last_question(messages);
  const auto answer = last_answer(messages);
  if (kind_ == TemplateKind::kSmolLm2 && messages[0].role != "system")
    page.header("system").fixed(kSmolLm2System).end();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool target = !options.last_only || i == answer;
    if (message.role != "assistant") {
      page.header(message.role).own(message.content).end();
    } else if (kind_ == TemplateKind::kQwen3) {
      qwen3_answer(page, message, i > question, i + 1 == messages.size(), target);
    } else {
      plain_answer(page, message, target);
    }
  }
  if (options.add_generation_prompt) {
    page.header("assistant");
    if (kind_ == TemplateKind::kQwen3 && options.enable_thinking == false)
      page.fixed(kThink).fixed("\n\n").fixed(kEndThink).fixed("\n\n");
  }
  return std::move(page.rendered());
}

ChatTemplate::ChatTemplate(TemplateKind kind, std::string digest, bool overrides_model)
    : kind_(kind), digest_(std::move(digest)), overrides_model_(overrides_model) {
  for (const Named& named : kNamed)
    if (named.kind == kind) name_ = named.name;
}

ChatTemplate ChatTemplate::of_kind(TemplateKind kind) { return {kind, "", false}; }

ChatTemplate ChatTemplate::choose(const std::filesystem::path& model_dir, const std::string& name) {
  const auto text = read_chat_template(model_dir);
  const std::string digest = text ? sha256_hex(*text) : "";
  const Known* known = text ? find_known(digest) : nullptr;
  if (name == "auto") {
    if (known) return {known->kind, digest, false};
    std::string list;
    for (const Known& one : kKnown) list += cat(list.empty() ? "" : ", ", one.digest, " (", one.what, ")");
    if (!text)
      fail(cat(model_dir.string(),
               ": no chat_template in tokenizer_config.json or chat_template.jinja; set data.template"));
    fail(cat(model_dir.string(), ": unknown chat_template, SHA-256 ", digest, "; known: ", list,
             "; or set data.template"));
  }
  for (const Named& named : kNamed)
    if (named.name == name) return {named.kind, digest, text && !(known && known->kind == named.kind)};
  std::string list;
  for (const std::string& one : names()) list += cat(list.empty() ? "" : ", ", one);
  throw Error(ErrorKind::kUsage, cat("data.template = ", name, " is not known (", list, ")"));
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> list = {"auto"};
  for (const Named& named : kNamed) list.emplace_back(named.name);
  return list;
}

std::vector<std::string_view> ChatTemplate::control_tokens() const {
  if (kind_ == TemplateKind::kQwen3) return {"<|im_start|>", kEndOfTurn, kThink, kEndThink};
  return {"<|im_start|>", kEndOfTurn};
}

std::optional<std::string> read_chat_template(const std::filesystem::path& model_dir) {
  const auto jinja = model_dir / "chat_template.jinja";
  if (std::filesystem::exists(jinja)) return read_text_file(jinja);
  const auto file = model_dir / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const nlohmann::json config = read_strict_json(file);
  if (!config.is_object()) fail(cat(file.string(), ": is no JSON object"));
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  // A list of named templates: the one that is used unless a call asks for another.
  if (found->is_array())
    for (const auto& one : *found)
      if (one.is_object() && one.value("name", nlohmann::json()) == "default" && one.contains("template") &&
          one["template"].is_string())
        return one["template"].get<std::string>();
  fail(cat(file.string(), ": chat_template is neither a text nor a list with one named default"));
}

}  // namespace tandem
