// What is checked: a run as it would begin, in both stacks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/context.hpp"
#include "src/mirror/mirror.hpp"
#include "src/model/lora.hpp"
#include "src/model/weights.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/inputs.hpp"

namespace tandem {

struct CheckSubject {
  const CpuContext& ctx;
  const Config& config;  // digested and resolved
  const RunInputs& inputs;
  const Weights& weights;
  const LoraLayout& lora;
  const mirror::Mirror& mirror;
  double flops_per_second;    // of the mirror, one thread
  std::int64_t memory_bytes;  // that the run may use (memory.limit), weights included

  // Flat arrays of the layout: the run's first A with B = 0, and with a drawn B.
  std::vector<float> untrained, seeded;
  mirror::Tensors seeded_tensors;  // in digest order

  // Of the mirror's work on n samples, which its threads share.
  double seconds(double flops, std::int64_t n) const {
    const std::int64_t threads = std::max<std::int64_t>(1, std::min<std::int64_t>(n, ctx.threads));
    return flops / (flops_per_second * static_cast<double>(threads));
  }
};

}  // namespace tandem
