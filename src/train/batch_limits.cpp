#include "src/train/batch_limits.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem {

namespace {

// The most tokens, and scored tokens, that `micro` samples of the set can have together.
std::pair<std::int64_t, std::int64_t> largest(const SampleSet& samples, std::int64_t micro) {
  std::vector<std::int64_t> lengths, scored;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    lengths.push_back(samples.length(i));
    scored.push_back(samples.n_scored(i));
  }
  const auto top = [&](std::vector<std::int64_t>& values) {
    const auto n = std::min<std::size_t>(values.size(), static_cast<std::size_t>(micro));
    std::partial_sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n), values.end(),
                      std::greater<>());
    return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n), std::int64_t{0});
  };
  return {top(lengths), top(scored)};
}

}  // namespace

BatchLimits batch_limits(const SampleSet& train, const SampleSet& held_out, std::int64_t micro) {
  BatchLimits limits;
  std::tie(limits.train_tokens, limits.train_scored) = largest(train, micro);
  std::tie(limits.eval_tokens, limits.eval_scored) = largest(held_out, micro);
  for (const SampleSet* set : {&train, &held_out})
    for (std::int64_t i = 0; i < set->size(); ++i)
      limits.longest_sample = std::max(limits.longest_sample, set->length(i));
  return limits;
}

}  // namespace tandem
