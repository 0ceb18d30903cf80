// The wording of the turns that `tandem prepare` writes. configs/prompts/ has the texts, built in alike, and
// explains the placeholders.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// A text with placeholders, "Question: {question}"; `{{` and `}}` stand for braces.
class PromptText {
 public:
  // Each of `names` may stand in it, and must. Throws kInput: file, line, column.
  PromptText(std::string_view text, const std::string& file, std::initializer_list<std::string_view> names);

  // A full stop behind a placeholder is left out where the value already ends a sentence.
  std::string fill(std::initializer_list<std::pair<std::string_view, std::string_view>> values) const;
  const std::string& digest() const { return digest_; }  // SHA-256 of the text

 private:
  struct Part {
    std::string text;
    bool is_name = false;
  };
  std::vector<Part> parts_;
  std::string digest_;
};

struct Prompts {
  PromptText choice;      // choice.txt: user turn of a multiple choice
  PromptText abstract;    // abstract.txt: user turn of a question on an abstract
  PromptText answer;      // answer.txt: assistant turn where there is no explanation
  PromptText conclusion;  // conclusion.txt: the same for a question on an abstract
};

// The four files of `folder`; the built-in texts where it is empty or lacks a file (but not all of them).
Prompts read_prompts(const std::filesystem::path& folder);

// The built-in text of choice.txt and so on.
std::string_view built_in_prompt(std::string_view file);

}  // namespace tandem
