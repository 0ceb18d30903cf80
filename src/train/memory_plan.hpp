// How much host memory a run takes, said before it starts; and how many layers must be computed again to fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/samples.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

struct MemoryPlan {
  std::int64_t weights_bytes = 0;     // once on a node
  std::int64_t activation_bytes = 0;  // a rank's, the larger of an update and an evaluation
  std::int64_t state_bytes = 0;       // a rank's adapter, moments, gradient and exact sum
  std::int64_t sample_bytes = 0;      // a rank's
  std::int64_t other_bytes = 0;       // a rank's: libraries, threads' scratch, the trajectory
  std::int64_t mirror_bytes = 0;      // once, on the node of the mirror's rank
  std::int64_t n_recomputed = 0;      // layers
  std::int64_t n_layers = 0;
  int local_ranks = 1;

  std::int64_t rank_bytes() const { return activation_bytes + state_bytes + sample_bytes + other_bytes; }
  std::int64_t node_bytes() const { return weights_bytes + local_ranks * rank_bytes() + mirror_bytes; }
  // For people: one line a part.
  std::vector<std::string> lines() const;
};

// As few recomputed layers as fit into `limit_bytes` for the ranks of a node. Throws kDevice with the
// figures, and what to change, where nothing fits.
MemoryPlan plan_memory(const ModelConfig& config, const LoraLayout& lora, const RunSpec& spec,
                       const Execution& execution, const SampleSet& train, const SampleSet& held_out,
                       int threads, int local_ranks, std::int64_t limit_bytes, bool on_gpu = false);

// memory.limit in bytes, or what this machine has free: the system's figure, or the control group's where
// lower.
std::int64_t memory_limit_bytes(const Execution& execution);

}  // namespace tandem
