// Which option of a question a model prefers, and what a count of right answers is worth.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/choices.hpp"
#include "src/train/scorer.hpp"

namespace tandem {

// The option with the least nll: of its whole text, or of its text per token, which does not favour short
// ones (Brown et al. 2020, "Language Models are Few-Shot Learners", section 2.4, compares options by both).
// The first of equals.
enum class ChoiceRule { kSum, kPerToken };

// The index, from 0, of the option preferred for each question.
std::vector<std::int64_t> preferred_options(const ChoiceSet& set, const Scores& scores, ChoiceRule rule);

struct Interval {
  double low = 0.0, high = 0.0;
};

// 95 % interval of a proportion of `right` in n > 0 trials (Wilson 1927, "Probable inference, the law of
// succession, and statistical inference"): with p = right/n and z = 1.96, (p + z^2/2n +- z sqrt(p(1-p)/n +
// z^2/4n^2)) / (1 + z^2/n).
Interval wilson_interval(std::int64_t right, std::int64_t n);

// Two models on the same questions (McNemar 1947, "Note on the sampling error of the difference between
// correlated proportions"): only questions that one alone answers rightly tell them apart.
struct Paired {
  std::int64_t only_base = 0, only_adapter = 0;  // right with the one and not with the other
  std::int64_t changed = 0;                      // another option is preferred
  // If both were as good, only_base would be binomial with p = 1/2: the chance of a split at least as uneven.
  double p_value() const;
};

Paired compare_answers(const ChoiceSet& set, std::span<const std::int64_t> base,
                       std::span<const std::int64_t> adapter);

std::int64_t count_right(const ChoiceSet& set, std::span<const std::int64_t> preferred);

}  // namespace tandem
