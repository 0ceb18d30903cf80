// One update of native as it is handed to the mirror: copies, so that training goes on meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/observations.hpp"

namespace tandem {

// Parameters, moments or gradient: the adapter's tensors one after the other, in digest order.
using FlatTensors = std::vector<float>;

// The tensors of `flat`, whose sizes are given in digest order. Views.
inline std::vector<std::span<const float>> cut(const FlatTensors& flat, std::span<const std::size_t> sizes) {
  std::vector<std::span<const float>> tensors;
  std::size_t begin = 0;
  for (const std::size_t size : sizes) {
    tensors.push_back(std::span(flat).subspan(begin, size));
    begin += size;
  }
  return tensors;
}

// row: in native's /load/name. digest: SHA-256 of the values as float32, in the file's shape.
struct BaseTensorInMemory {
  std::int64_t row = 0;
  std::string name, digest;
};

// Native's base weights after update `step`, 0 before the first.
struct BaseWeights {
  std::int64_t step = 0;
  std::vector<BaseTensorInMemory> tensors;
  bool recorded = true;  // in /load/memory; a difference always is
};

struct UpdateJob {
  std::int64_t step = 0;          // t
  std::int64_t steps_before = 0;  // optimiser steps made before it

  // What native says of it.
  std::vector<std::int64_t> sample_ids;     // of the global batch, in order
  std::vector<std::string> sample_digests;  // theirs (SPEC.md, "Digests"); empty: not known
  std::int64_t n_targets = 0;
  double loss = 0.0, norm = 0.0, clip = 1.0, lr = 0.0;
  FlatTensors adapter, m, v;                    // before the step
  FlatTensors gradient;                         // divided by n_targets, not clipped
  FlatTensors adapter_after, m_after, v_after;  // after the step; empty: not known

  // With scope microbatch, the micro-batch that is checked: the sum of its nll and that sum's gradient.
  AuditScope scope = AuditScope::kBatch;
  std::int64_t micro_batch = -1;
  std::int64_t micro_begin = 0, micro_end = 0;  // its samples: positions in sample_ids
  double micro_nll = 0.0;
  FlatTensors micro_gradient;

  // False: adapter or moments before this update lack the bits that the update before left; true too where
  // that is not known.
  bool state_kept = true;
  // False: adapter and moments before update 1 were chosen for a check and are not the spec's.
  bool starts_as_specified = true;

  std::string config;  // the model's configuration as native read it (/load/config); "": not known

  // A base tensor as it lies in native's memory; none is looked at in a replay.
  std::optional<BaseTensorInMemory> base_tensor;
};

}  // namespace tandem
