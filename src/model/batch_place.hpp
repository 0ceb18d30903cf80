// A micro-batch where a context computes: on the host the vectors themselves, on a device their copies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/model/context_memory.hpp"
#include "src/model/micro_batch.hpp"

namespace tandem {

// Views of MicroBatch's columns.
struct BatchView {
  std::span<const std::int32_t> ids, position;       // [T]
  std::span<const std::uint64_t> sample_key;         // [T]
  std::span<const std::int32_t> sample_begin;        // [S+1]
  std::span<const std::int32_t> scored_row, target;  // [N]

  std::int64_t n_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t n_scored() const { return static_cast<std::int64_t>(target.size()); }
};

template <class Context>
class BatchPlace {
 public:
  BatchPlace() = default;
  // For micro-batches of at most so many tokens, no sample of which is empty.
  BatchPlace(const Context& ctx, std::int64_t most_tokens) {
    if constexpr (!MemoryOf<Context>::kOnHost) {
      ArenaPlan plan;
      take(plan, most_tokens);
      block_ = MemoryOf<Context>::allocate(ctx, plan.bytes(), "micro-batch");
      take(block_, most_tokens);
    }
  }

  BatchView put(const Context& ctx, const MicroBatch& batch) const {
    if constexpr (MemoryOf<Context>::kOnHost) {
      return {batch.ids,          batch.position,   batch.sample_key,
              batch.sample_begin, batch.scored_row, batch.target};
    } else {
      const auto copy = [&](auto place, const auto& column) {
        const auto here = place.first(column.size());
        copy_bytes_to_device(ctx, here.data(), column.data(), here.size_bytes());
        return here;
      };
      return {copy(ids_, batch.ids),
              copy(position_, batch.position),
              copy(sample_key_, batch.sample_key),
              copy(sample_begin_, batch.sample_begin),
              copy(scored_row_, batch.scored_row),
              copy(target_, batch.target)};
    }
  }

 private:
  template <class Memory>
  void take(Memory& memory, std::int64_t most_tokens) {
    ids_ = memory.template take<std::int32_t>(most_tokens);
    position_ = memory.template take<std::int32_t>(most_tokens);
    sample_key_ = memory.template take<std::uint64_t>(most_tokens);
    sample_begin_ = memory.template take<std::int32_t>(most_tokens + 1);
    scored_row_ = memory.template take<std::int32_t>(most_tokens);
    target_ = memory.template take<std::int32_t>(most_tokens);
  }

  typename MemoryOf<Context>::Block block_;
  std::span<std::int32_t> ids_, position_, sample_begin_, scored_row_, target_;
  std::span<std::uint64_t> sample_key_;
};

}  // namespace tandem
