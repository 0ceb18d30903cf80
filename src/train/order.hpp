// Which samples each update sees (SPEC.md, "Random numbers, initial adapter, order").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Order of the n samples in an epoch (from 0): sorted by (draw(seed, "order", epoch << 32 | i), i).
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t n);

// The global batches. A batch never spans epochs; an epoch's last batch may be short.
class BatchOrder {
 public:
  BatchOrder(std::uint64_t seed, std::int64_t n_samples, std::int64_t batch_global);

  // Samples of update t = 1, 2, ...; valid until the next call.
  std::span<const std::int64_t> batch(std::int64_t t);
  std::int64_t updates_per_epoch() const { return updates_per_epoch_; }

 private:
  std::uint64_t seed_;
  std::int64_t n_samples_, batch_global_, updates_per_epoch_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace tandem
