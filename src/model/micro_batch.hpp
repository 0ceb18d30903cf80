// One micro-batch: samples packed into one row of tokens, and which of them are scored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/samples.hpp"

namespace tandem {

struct MicroBatch {
  std::vector<std::int32_t> ids;           // [T]
  std::vector<std::int32_t> position;      // [T], from 0 in each sample
  std::vector<std::uint64_t> sample_key;   // [T], splitmix64(update << 32 | sample): for dropout
  std::vector<std::int32_t> sample_begin;  // [S+1]
  // Token p >= 1 of a sample with target mark 1 is scored by the logits at p-1 of the same sample.
  std::vector<std::int32_t> scored_row;  // [N] row of the logits
  std::vector<std::int32_t> target;      // [N] token id

  std::int64_t n_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t n_scored() const { return static_cast<std::int64_t>(target.size()); }

  // Replaces the contents by the samples given, in that order. Capacity is kept: no allocation in an update.
  // update: which one this belongs to; evaluations, which know no dropout, leave it at 0.
  void pack(const SampleSet& samples, std::span<const std::int64_t> indices, std::int64_t update = 0);
  // One sample, all of whose tokens predict: scored_row is every row, and target names no token.
  void all_positions(std::span<const std::int32_t> tokens);
  void reserve(std::int64_t n_tokens, std::int64_t n_samples);
};

}  // namespace tandem
