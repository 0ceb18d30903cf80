#include "io/clinical/convert.hpp"

#include <algorithm>
#include <vector>

#include "io/clinical/answer_letter.hpp"
#include "io/clinical/clean_text.hpp"

namespace tandem {
namespace {

// True if cleaning changed the text.
bool clean(std::string& text) {
  std::string cleaned = clean_text(text);
  const bool changed = cleaned != text;
  text = std::move(cleaned);
  return changed;
}

bool clean(ClinicalItem& item) {
  bool changed = clean(item.question);
  for (ContextPart& part : item.context) {
    changed |= clean(part.label);
    changed |= clean(part.text);
  }
  for (std::string& option : item.options) changed |= clean(option);
  changed |= clean(item.answer_text);
  changed |= clean(item.explanation);
  return changed;
}

std::string letter(std::size_t option) { return std::string(1, static_cast<char>('A' + option)); }

std::string option_lines(const std::vector<std::string>& options) {
  std::string text;
  for (std::size_t i = 0; i < options.size(); ++i)
    text += (i > 0 ? "\n" : "") + letter(i) + ". " + options[i];
  return text;
}

std::string context_lines(const std::vector<ContextPart>& context) {
  std::string text;
  for (const ContextPart& part : context) {
    if (part.text.empty()) continue;
    if (!text.empty()) text += '\n';
    if (!part.label.empty()) text += part.label + ": ";
    text += part.text;
  }
  return text;
}

// "B i.e. Lupus vulgaris", "Ans. D-First line defence": bytes before the answer, where its own letter and
// then its own text begin the explanation; else 0. Without a word that announces it, a sign must follow the
// letter.
std::size_t leading_letter(std::string_view text, std::size_t right, std::string_view folded_answer) {
  std::size_t at = announcing_words(text);
  const bool announced = at > 0;
  if (at >= text.size() || folded_answer.empty()) return 0;
  const char own = letter(right)[0];
  if (text[at] != own && !(announced && text[at] == own - 'A' + 'a')) return 0;
  const std::size_t signs = ++at;
  if (text.substr(at).starts_with(" i.e.")) at += 5;
  const auto is_sign = [&](std::size_t i) {
    const bool minus = text[i] == '-' && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9';
    return !minus && std::string_view(" .:,)-").find(text[i]) != std::string_view::npos;
  };
  while (at < text.size() && is_sign(at)) ++at;
  if (at == signs || (!announced && at == signs + 1 && text[signs] == ' ')) return 0;
  return fold_text(text.substr(at)).starts_with(folded_answer) ? at : 0;
}

void leave_out_letter(std::string& explanation, std::size_t right, const std::string& folded_answer,
                      ConvertedItem& result) {
  if (const auto announced = announced_option(explanation)) {
    result.letter_announced = true;
    result.letter_agrees = announced->option == right;
    explanation.erase(0, announced->length);
  } else if (const std::size_t begin = leading_letter(explanation, right, folded_answer)) {
    result.letter_announced = result.letter_agrees = true;
    explanation.erase(0, begin);
  }
}

TextKey key_of_options(const std::string& stem, const std::vector<std::string>& options) {
  std::vector<std::string> folded;
  for (const std::string& option : options) folded.push_back(fold_answer(option));
  std::sort(folded.begin(), folded.end());
  std::string text = stem + "options";
  for (const std::string& option : folded) text += '\0' + option;
  return key_of(text);
}

bool any_equal(std::vector<std::string> options) {
  std::sort(options.begin(), options.end());
  return std::adjacent_find(options.begin(), options.end()) != options.end();
}

}  // namespace

std::variant<ConvertedItem, Reason> Converter::convert(ClinicalItem item) const {
  if (item.reason) return *item.reason;
  ConvertedItem result;
  result.changed = clean(item);
  const std::string question = fold_text(item.question);
  if (question.empty()) return Reason::kNoQuestion;

  const bool choice = item.right_option.has_value() || !item.options.empty();
  const std::string context = context_lines(item.context);
  if (choice) {
    if (item.options.size() < 2) return Reason::kFewOptions;
    if (std::any_of(item.options.begin(), item.options.end(), [](const auto& text) { return text.empty(); }))
      return Reason::kEmptyOption;
    result.equal_options = any_equal(item.options);
  } else if (context.empty()) {
    return Reason::kNoContext;
  }
  const std::string& answer = choice ? item.options[*item.right_option] : item.answer_text;
  const std::string folded_answer = fold_text(answer);
  if (choice) leave_out_letter(item.explanation, *item.right_option, folded_answer, result);

  const std::string folded_explanation = fold_text(item.explanation);
  result.is_explanation = !folded_explanation.empty() && folded_explanation != folded_answer;
  if (!result.is_explanation && !answers_) return Reason::kNoExplanation;
  if (!result.is_explanation && answer.empty()) return Reason::kNoAnswer;

  result.user =
      choice ? prompts_.choice.fill({{"question", item.question}, {"options", option_lines(item.options)}})
             : prompts_.abstract.fill({{"context", context}, {"question", item.question}});
  if (result.is_explanation)
    result.assistant = std::move(item.explanation);
  else
    result.assistant = (choice ? prompts_.answer : prompts_.conclusion).fill({{"answer", answer}});

  // A NUL stands in no cleaned text.
  const std::string folded_context = fold_text(context);
  const std::string stem = question + '\0' + folded_context + '\0';
  result.question = key_of(question);
  result.exact = key_of(result.user + '\0' + result.assistant);
  result.by_answer = key_of(stem + "answer" + '\0' + fold_answer(answer));
  result.by_options = key_of_options(stem, item.options);
  if (result.is_explanation) result.long_texts[0] = key_of(folded_explanation);
  if (!folded_context.empty()) result.long_texts[1] = key_of(folded_context);
  return result;
}

}  // namespace tandem
