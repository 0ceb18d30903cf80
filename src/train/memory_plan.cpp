#include "src/train/memory_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "comm/control_groups.hpp"
#include "io/observations.hpp"
#include "src/audit/mirror_memory.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/batch_limits.hpp"
#include "src/train/cpu_engine.hpp"
#include "src/train/format_numbers.hpp"

namespace tandem {

namespace {

// Measured: MPI, HDF5 and the other libraries, and oneDNN's packing buffers of one thread.
constexpr std::int64_t kProcessBytes = 72 << 20, kThreadBytes = 20 << 20;
// CUDA's context and libraries on the host, page-locked buffers: a guess, never measured.
constexpr std::int64_t kGpuProcessBytes = std::int64_t{1} << 30;

std::string gib(std::int64_t bytes) { return formatted("%.2f GiB", static_cast<double>(bytes) / 0x1p30); }

std::int64_t bytes_of(const SampleSet& samples) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) tokens += samples.length(i);
  // An id and a mark a token; vectors grow by doubling.
  return 2 * tokens * 5 + samples.size() * 16;
}

// What the trajectory keeps of all evaluations, and once more while it is published. Rank 0's, but ranks are
// planned alike.
std::int64_t evaluations_bytes(const ModelConfig& config, const LoraLayout& lora, const RunSpec& spec,
                               const Execution& execution) {
  const std::int64_t evaluations = spec.train_updates / spec.eval_every + 2;
  const auto norms = static_cast<std::int64_t>(lora.tensors().size()) * 3 / 2;
  const std::int64_t numbers = execution.observe_probe * (2 + 2 * kTopLogits) + 2 * config.n_layers + norms;
  return 2 * evaluations * numbers * 8;
}

// Every node is planned as the mirror's own.
std::int64_t mirror_bytes(const ModelConfig& config, const LoraLayout& lora, const RunSpec& spec,
                          const Execution& execution, const BatchLimits& limits) {
  if (!execution.audits() && !execution.free_run()) return 0;
  MirrorSizes sizes;
  for (const auto& tensor : lora.tensors()) sizes.adapter_elements += tensor.rows * tensor.cols;
  sizes.layers = config.n_layers;
  sizes.hidden = config.hidden;
  sizes.intermediate = config.intermediate;
  sizes.heads = config.heads.n_heads;
  sizes.qkv = config.heads.qkv_cols();
  sizes.longest_sample = limits.longest_sample;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(spec.model.path, ignored))
    if (entry.path().extension() == ".safetensors")
      sizes.model_file_bytes += static_cast<std::int64_t>(entry.file_size(ignored));
  sizes.audits = execution.audits();
  sizes.free_run = execution.free_run();
  sizes.snapshots = execution.snapshot_every > 0;
  return mirror_memory_bytes(sizes);
}

std::int64_t available_bytes() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  while (info >> key >> kib) {
    if (key == "MemAvailable:") available = kib * 1024;
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::min(available, control_group_limits().memory_bytes);
}

}  // namespace

std::int64_t memory_limit_bytes(const Execution& execution) {
  if (execution.memory_limit > 0.0) return static_cast<std::int64_t>(execution.memory_limit * 0x1p30);
  return available_bytes();
}

std::vector<std::string> MemoryPlan::lines() const {
  std::vector<std::string> lines = {
      cat("memory: ", gib(node_bytes()), " for the ", local_ranks, local_ranks == 1 ? " rank" : " ranks",
          " of a node: weights ", gib(weights_bytes), " once; a rank ", gib(rank_bytes()), ": activations ",
          gib(activation_bytes), ", adapter and moments ", gib(state_bytes), ", samples ", gib(sample_bytes),
          ", other ", gib(other_bytes), mirror_bytes > 0 ? cat("; the mirror ", gib(mirror_bytes)) : "")};
  if (n_recomputed > 0)
    lines.push_back(
        cat(n_recomputed, " of ", n_layers, " layers are computed again in backward, to fit (memory.limit)"));
  return lines;
}

MemoryPlan plan_memory(const ModelConfig& config, const LoraLayout& lora, const RunSpec& spec,
                       const Execution& execution, const SampleSet& train, const SampleSet& held_out,
                       int threads, int local_ranks, std::int64_t limit_bytes, bool on_gpu) {
  const BatchLimits limits = batch_limits(train, held_out, execution.batch_micro);
  const CpuContext one_thread(1);
  const Weights none(config, {});
  const Transformer model(one_thread, config, none.views(), lora, limits,
                          {spec.lora_dropout, spec.seed_dropout});
  MemoryPlan plan;
  plan.weights_bytes = static_cast<std::int64_t>(Weights::bytes(config));
  plan.state_bytes = static_cast<std::int64_t>(CpuEngine::state_bytes(lora, limits));
  plan.sample_bytes = bytes_of(train) + bytes_of(held_out);
  plan.other_bytes = kProcessBytes + threads * kThreadBytes;
  if (limits.eval_scored > 0) plan.other_bytes += evaluations_bytes(config, lora, spec, execution);
  plan.mirror_bytes = mirror_bytes(config, lora, spec, execution, limits);
  plan.n_layers = config.n_layers;
  plan.local_ranks = local_ranks;
  if (on_gpu) {  // the engine plans the device's memory; on the host stay copies of the state
    plan.other_bytes += kGpuProcessBytes;
    plan.state_bytes = 4 * lora.size() * static_cast<std::int64_t>(sizeof(float));
    if (plan.node_bytes() <= limit_bytes) return plan;
    throw Error(ErrorKind::kDevice, cat("the run does not fit into ", gib(limit_bytes), " of host memory: ",
                                        plan.lines()[0], "; fewer ranks a node would help"));
  }
  for (; plan.n_recomputed <= config.n_layers; ++plan.n_recomputed) {
    plan.activation_bytes = static_cast<std::int64_t>(model.planned_bytes(plan.n_recomputed));
    if (plan.node_bytes() <= limit_bytes) return plan;
  }
  plan.n_recomputed = config.n_layers;
  throw Error(ErrorKind::kDevice, cat("the run does not fit into ", gib(limit_bytes), ": ", plan.lines()[0],
                                      ", with every layer computed again; a smaller batch.micro or "
                                      "data.max_tokens or fewer ranks a node would help"));
}

}  // namespace tandem
