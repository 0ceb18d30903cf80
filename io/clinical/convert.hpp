// A clinical item as a conversation of one user and one assistant turn, with what tells whether it was seen.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "io/clinical/fold.hpp"
#include "io/clinical/item.hpp"
#include "io/clinical/prompts.hpp"

namespace tandem {

struct ConvertedItem {
  std::string user, assistant;
  bool is_explanation = false;  // else the answer as a sentence

  TextKey question;  // of the folded question
  TextKey exact;     // of both turns as written
  // Of folded texts: question, abstract and right answer; question, abstract and options in any order. Rows
  // that share one of them are one question.
  TextKey by_answer, by_options;
  // Folded explanation and abstract: long texts that must not stand on both sides.
  std::array<std::optional<TextKey>, 2> long_texts;

  // For the report.
  bool changed = false;                                  // clean_text changed one of the texts
  bool equal_options = false;                            // two options are the same text
  bool letter_announced = false, letter_agrees = false;  // the explanation began with an option's letter
};

// Targets are written text: an option's letter that an explanation begins with is left out, and an
// explanation that says no more than the answer counts as none.
class Converter {
 public:
  // `answers`: rows without an explanation get the answer as a sentence; else they are left out.
  Converter(Prompts prompts, bool answers) : prompts_(std::move(prompts)), answers_(answers) {}
  std::variant<ConvertedItem, Reason> convert(ClinicalItem item) const;
  const Prompts& prompts() const { return prompts_; }

 private:
  Prompts prompts_;
  bool answers_;
};

}  // namespace tandem
