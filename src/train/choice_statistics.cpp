#include "src/train/choice_statistics.hpp"

#include <algorithm>
#include <cmath>

namespace tandem {

std::vector<std::int64_t> preferred_options(const ChoiceSet& set, const Scores& scores, ChoiceRule rule) {
  std::vector<std::int64_t> preferred;
  for (const ChoiceSet::Question& question : set.questions) {
    std::int64_t best = 0;
    double least = 0.0;
    for (std::int64_t i = 0; i < question.n_options; ++i) {
      const std::span<const float> nll = scores.of(question.first + i);
      double sum = 0.0;
      for (const float value : nll) sum += static_cast<double>(value);
      if (rule == ChoiceRule::kPerToken) sum /= static_cast<double>(nll.size());
      if (i > 0 && !(sum < least)) continue;
      least = sum;
      best = i;
    }
    preferred.push_back(best);
  }
  return preferred;
}

Interval wilson_interval(std::int64_t right, std::int64_t n) {
  constexpr double z = 1.959963984540054;  // the normal distribution's 97.5 % point
  const auto count = static_cast<double>(n);
  const double p = static_cast<double>(right) / count, z2 = z * z / count;
  const double middle = (p + z2 / 2.0) / (1.0 + z2);
  const double half = z * std::sqrt(p * (1.0 - p) / count + z2 / (4.0 * count)) / (1.0 + z2);
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

double Paired::p_value() const {
  const auto n = static_cast<double>(only_base + only_adapter);
  const std::int64_t few = std::min(only_base, only_adapter);
  double tail = 0.0;
  for (std::int64_t k = 0; k <= few; ++k) {
    const auto at = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(at + 1.0) - std::lgamma(n - at + 1.0) -
                     n * std::log(2.0));
  }
  return std::min(1.0, 2.0 * tail);
}

Paired compare_answers(const ChoiceSet& set, std::span<const std::int64_t> base,
                       std::span<const std::int64_t> adapter) {
  Paired paired;
  for (std::size_t i = 0; i < set.questions.size(); ++i) {
    const std::int64_t answer = set.questions[i].answer;
    paired.only_base += base[i] == answer && adapter[i] != answer;
    paired.only_adapter += base[i] != answer && adapter[i] == answer;
    paired.changed += base[i] != adapter[i];
  }
  return paired;
}

std::int64_t count_right(const ChoiceSet& set, std::span<const std::int64_t> preferred) {
  std::int64_t right = 0;
  for (std::size_t i = 0; i < set.questions.size(); ++i) right += preferred[i] == set.questions[i].answer;
  return right;
}

}  // namespace tandem
