#include "io/clinical/prompts.hpp"

#include <algorithm>
#include <array>

#include "io/text/strict_json.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

struct BuiltIn {
  std::string_view file, text;
};

// As in configs/prompts, so that an installed program needs no file; a test keeps them equal.
constexpr std::array<BuiltIn, 4> kBuiltIn = {{
    {"choice.txt", R"(Answer this medical question in words.

Question: {question}

Options:
{options}
)"},
    {"abstract.txt", R"(Answer this question from the abstract.

Abstract:
{context}

Question: {question}
)"},
    {"answer.txt", R"(The correct answer is: {answer}.
)"},
    {"conclusion.txt", R"(The answer to the question is: {answer}.
)"},
}};

[[noreturn]] void fail(const std::string& file, std::string_view text, std::size_t at,
                       const std::string& what) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? at + 1 : at - newline;
  throw Error(ErrorKind::kInput, cat(file, " line ", line, " column ", column, ": ", what));
}

std::string joined(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += cat(text.empty() ? "{" : ", {", name, "}");
  return text;
}

bool ends_sentence(std::string_view text) {
  for (const std::string_view closing : {"\"", "'", ")", "\xE2\x80\x9D", "\xE2\x80\x99"})
    if (text.ends_with(closing)) {
      text.remove_suffix(closing.size());
      break;
    }
  return text.ends_with('.') || text.ends_with('!') || text.ends_with('?');
}

std::string without_line_end(std::string text) {
  std::erase(text, '\r');
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

PromptText::PromptText(std::string_view text, const std::string& file,
                       std::initializer_list<std::string_view> names)
    : digest_(sha256_hex(text)) {
  if (const auto bad = first_invalid_utf8(text)) fail(file, text, *bad, "not valid UTF-8");
  std::vector<std::string_view> used;
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) parts_.push_back({std::move(literal), false});
    literal.clear();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      literal += c;
    } else if (at + 1 < text.size() && text[at + 1] == c) {
      literal += c;
      ++at;
    } else {
      const std::size_t end = c == '{' ? text.find('}', at) : std::string_view::npos;
      if (end == std::string_view::npos)
        fail(file, text, at, "a brace without its other half; write {{ or }} for a brace");
      const std::string_view name = text.substr(at + 1, end - at - 1);
      if (std::find(names.begin(), names.end(), name) == names.end())
        fail(file, text, at, cat("{", name, "} is no placeholder here; there are ", joined(names)));
      flush();
      parts_.push_back({std::string(name), true});
      used.push_back(name);
      at = end;
    }
  }
  flush();
  for (const std::string_view name : names)
    if (std::find(used.begin(), used.end(), name) == used.end())
      throw Error(ErrorKind::kInput, cat(file, ": the placeholder {", name, "} is missing"));
}

std::string PromptText::fill(
    std::initializer_list<std::pair<std::string_view, std::string_view>> values) const {
  std::string out;
  bool sentence_ended = false;
  for (const Part& part : parts_) {
    if (part.is_name) {
      for (const auto& [name, value] : values)
        if (name == part.text) out += value;
      sentence_ended = ends_sentence(out);
    } else {
      out += std::string_view(part.text).substr(sentence_ended && part.text.starts_with('.'));
      sentence_ended = false;
    }
  }
  return out;
}

std::string_view built_in_prompt(std::string_view file) {
  for (const BuiltIn& built_in : kBuiltIn)
    if (built_in.file == file) return built_in.text;
  throw Error(ErrorKind::kInternal, cat("no built-in prompt ", file));
}

Prompts read_prompts(const std::filesystem::path& folder) {
  if (!folder.empty()) {
    const bool any = std::any_of(kBuiltIn.begin(), kBuiltIn.end(), [&](const BuiltIn& built_in) {
      return std::filesystem::exists(folder / built_in.file);
    });
    if (!any)
      throw Error(ErrorKind::kInput, cat(folder.string(),
                                         ": holds no prompt: choice.txt, abstract.txt, "
                                         "answer.txt, conclusion.txt"));
  }
  const auto read = [&](const char* file, std::initializer_list<std::string_view> names) {
    const bool given = !folder.empty() && std::filesystem::exists(folder / file);
    const std::string text = given ? read_text_file(folder / file) : std::string(built_in_prompt(file));
    return PromptText(without_line_end(text), given ? (folder / file).string() : file, names);
  };
  return {.choice = read("choice.txt", {"question", "options"}),
          .abstract = read("abstract.txt", {"context", "question"}),
          .answer = read("answer.txt", {"answer"}),
          .conclusion = read("conclusion.txt", {"answer"})};
}

}  // namespace tandem
