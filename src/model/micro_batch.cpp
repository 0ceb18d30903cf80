#include "src/model/micro_batch.hpp"

#include <numeric>

#include "src/base/fault.hpp"
#include "src/base/random.hpp"

namespace tandem {

void MicroBatch::pack(const SampleSet& samples, std::span<const std::int64_t> indices, std::int64_t update) {
  ids.clear();
  position.clear();
  sample_key.clear();
  sample_begin.assign(1, 0);
  scored_row.clear();
  target.clear();
  for (const std::int64_t index : indices) {
    const auto begin = static_cast<std::int32_t>(ids.size());
    const auto tokens = samples.ids(index);
    const auto marks = samples.targets(index);
    sample_key.insert(
        sample_key.end(), tokens.size(),
        splitmix64(static_cast<std::uint64_t>(update) << 32 | static_cast<std::uint64_t>(index)));
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      ids.push_back(tokens[p]);
      position.push_back(static_cast<std::int32_t>(p));
      if (p == 0 || !marks[p]) continue;
      scored_row.push_back(begin + static_cast<std::int32_t>(p) - 1);
      target.push_back(tokens[planted("shifted_labels") && p + 1 < tokens.size() ? p + 1 : p]);
    }
    sample_begin.push_back(static_cast<std::int32_t>(ids.size()));
  }
  if (planted("leaking_packing")) sample_begin = {0, sample_begin.back()};
}

void MicroBatch::all_positions(std::span<const std::int32_t> tokens) {
  ids.assign(tokens.begin(), tokens.end());
  position.resize(tokens.size());
  std::iota(position.begin(), position.end(), 0);
  sample_key.assign(tokens.size(), 0);
  sample_begin = {0, static_cast<std::int32_t>(tokens.size())};
  scored_row = position;
  target.assign(tokens.size(), 0);
}

void MicroBatch::reserve(std::int64_t n_tokens, std::int64_t n_samples) {
  for (auto* column : {&ids, &position, &scored_row, &target})
    column->reserve(static_cast<std::size_t>(n_tokens));
  sample_key.reserve(static_cast<std::size_t>(n_tokens));
  sample_begin.reserve(static_cast<std::size_t>(n_samples) + 1);
}

}  // namespace tandem
