// Multiple-choice questions: a row is a question, its options and which of them is right. Each option becomes
// a sample: the conversation as training renders it with the option as its last answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/dataset.hpp"
#include "io/samples.hpp"

namespace tandem {

struct ChoiceSet {
  struct Question {
    std::int64_t line = 0;   // 1-based, physical
    std::int64_t first = 0;  // sample of its first option; the others follow
    std::int64_t n_options = 0;
    std::int64_t answer = 0;  // from 0
  };
  SampleSet samples;  // scored: the tokens of the option's text, not the end-of-turn token
  std::vector<Question> questions;
  std::int64_t too_long = 0;  // questions left out: an option does not fit into max_tokens
};

// Rows {"question": TEXT, "choices": [TEXT, TEXT, ...], "answer": N}; instead of `question`, whatever
// generate reads as a prompt (prompt, messages, ...). Other keys are ignored. Throws kInput naming file and
// line, also where two options of a row are the same tokens, and where no question is left.
ChoiceSet load_choices(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                       const RenderOptions& options);

}  // namespace tandem
