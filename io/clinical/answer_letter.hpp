// MedMCQA's explanations often begin by announcing the option: "Ans. is 'c' i.e., Miotic", "Answer- B.
// Melanoma".
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem {

struct AnnouncedOption {
  std::size_t option = 0;  // 0 for A
  std::size_t length = 0;  // bytes of the announcement; the explanation proper begins there
};

// An announcement at the text's begin: a word for "answer", then one letter from A to E that stands alone (or
// is glued to a capitalised word, as in "Answer- BRadioactive"). Not "Ans. Diclofenac", nor "Answer- CT
// scan".
std::optional<AnnouncedOption> announced_option(std::string_view text);

// Bytes of a word for "answer" and the signs behind it at the text's begin, "Ans. is "; 0 where there is
// none.
std::size_t announcing_words(std::string_view text);

}  // namespace tandem
