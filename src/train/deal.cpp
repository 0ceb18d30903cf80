#include "src/train/deal.hpp"

#include <algorithm>

namespace tandem {

void deal(std::vector<int>& owner, const std::string& how, const SampleSet& samples,
          std::span<const std::int64_t> batch, std::int64_t micro, int ranks) {
  owner.clear();
  const auto n = static_cast<std::int64_t>(batch.size());
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t begin = 0, j = 0; begin < n; begin += micro, ++j) {
    int rank = static_cast<int>(j % ranks);
    if (how == "reversed") rank = ranks - 1 - rank;
    if (how == "least_loaded")
      rank = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
    for (std::int64_t i = begin; i < std::min(n, begin + micro); ++i)
      load[static_cast<std::size_t>(rank)] += samples.length(batch[static_cast<std::size_t>(i)]);
    owner.push_back(rank);
  }
}

}  // namespace tandem
