// Conversations as the text a model was trained on. Each known chat_template is rendered by code of our own,
// which knows where every byte comes from; which template a model has is decided by the SHA-256 of its own
// text, never guessed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/span.hpp"

namespace tandem {

// The token that ends a turn in every template that is known here.
inline constexpr std::string_view kEndOfTurn = "<|im_end|>";

struct Message {
  std::string role;  // system, user or assistant
  std::string content;
  std::optional<std::string> reasoning_content;  // assistant only
};

struct PromptOptions {
  bool add_generation_prompt = false;
  std::optional<bool> enable_thinking;  // Qwen3: false puts an empty think block into the generation prompt
  bool last_only = false;               // targets: the last assistant turn only
};

struct Rendered {
  std::string text;
  std::vector<Span> targets;  // what is trained on; sorted, not overlapping
  std::vector<Span> own;  // what came from the conversation, not from the template; sorted, not overlapping
  std::int64_t reasoning_dropped = 0;  // think parts the template leaves out
  std::int64_t text_dropped =
      0;  // messages of which it leaves out other text (before <think>, between two </think>)
};

enum class TemplateKind { kQwen3, kSmolLm2, kChatMl };

class ChatTemplate {
 public:
  // `name` is data.template: `auto` (by the hash of the model's own template), or a name of names().
  // Throws kInput where the model has no template or an unknown one: with its SHA-256 and those known.
  static ChatTemplate choose(const std::filesystem::path& model_dir, const std::string& name);
  static ChatTemplate of_kind(TemplateKind kind);
  // "auto, qwen3, smollm2, chatml"
  static std::vector<std::string> names();

  // Throws kInput saying which message is wrong (counted from 1) and why.
  Rendered render(std::span<const Message> messages, const PromptOptions& options = {}) const;

  // What must be added tokens of the tokenizer: as ordinary text they would mean nothing to the model.
  std::vector<std::string_view> control_tokens() const;

  const std::string& name() const { return name_; }  // qwen3, smollm2, chatml
  const std::string& digest() const {
    return digest_;
  }  // SHA-256 of the model's own template; "" where it has none
  // True where data.template names another template than the model's own (or the model's own is unknown).
  bool overrides_model() const { return overrides_model_; }

 private:
  ChatTemplate(TemplateKind kind, std::string digest, bool overrides_model);
  TemplateKind kind_;
  std::string name_;
  std::string digest_;
  bool overrides_model_;
};

// The model's own template: chat_template.jinja, else `chat_template` of tokenizer_config.json.
std::optional<std::string> read_chat_template(const std::filesystem::path& model_dir);

}  // namespace tandem
