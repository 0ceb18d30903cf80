// How a conversation becomes text. Each template renders as the model's own `chat_template` does, without
// generation prompt; which one a model has is read from features of its template's text.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/mirror/tokenizer.hpp"

namespace tandem::mirror {

struct Turn {
  std::string role;  // system, user, assistant
  std::string content;
  std::optional<std::string> reasoning;
};

enum class ChatTemplate { kQwen3, kSmolLm2, kChatMl };

// The text of a model's own template: chat_template.jinja, else `chat_template` of tokenizer_config.json.
// Nothing where the model has none.
std::optional<std::string> own_template(const std::filesystem::path& model);

// `name`: data.template. kInput where the model's own is asked for and not known.
ChatTemplate choose_template(const std::string& name, const std::optional<std::string>& own,
                             const std::filesystem::path& model);

// The added tokens that a template writes and counts on.
std::vector<std::string> control_tokens(ChatTemplate which);

// Targets: what assistant turns say and the token that ends them; in Qwen3 the reasoning too where there is
// any (SPEC.md, "Rendering"). last_only: of the last assistant turn alone.
std::vector<Part> render(ChatTemplate which, const std::vector<Turn>& turns, bool last_only);

}  // namespace tandem::mirror
