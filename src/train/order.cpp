#include "src/train/order.hpp"

#include <algorithm>
#include <utility>

#include "src/base/random.hpp"

namespace tandem {

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t n) {
  const RandomStream stream(seed, "order");
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    keyed[static_cast<std::size_t>(i)] = {
        stream.draw(static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(i)), i};
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& entry : keyed) order.push_back(entry.second);
  return order;
}

BatchOrder::BatchOrder(std::uint64_t seed, std::int64_t n_samples, std::int64_t batch_global)
    : seed_(seed),
      n_samples_(n_samples),
      batch_global_(batch_global),
      updates_per_epoch_((n_samples + batch_global - 1) / batch_global) {}

std::span<const std::int64_t> BatchOrder::batch(std::int64_t t) {
  const std::int64_t epoch = (t - 1) / updates_per_epoch_, index = (t - 1) % updates_per_epoch_;
  if (epoch != epoch_) {
    order_ = epoch_order(seed_, epoch, n_samples_);
    epoch_ = epoch;
  }
  const std::int64_t begin = index * batch_global_, end = std::min(n_samples_, begin + batch_global_);
  return {order_.data() + begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace tandem
