// The state of a run and the two things done with it: an update and an evaluation. Collective: all ranks call
// the same functions with the same arguments and get the same results, bit for bit, whatever their number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "io/samples.hpp"
#include "kernels/context.hpp"
#include "src/model/transformer.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/engine.hpp"
#include "src/train/order.hpp"
#include "src/train/probe.hpp"
#include "src/train/slow_phases.hpp"

namespace tandem {

struct UpdateResult {
  double loss = 0.0;  // nll per scored token, of the adapter before the step; NaN where nothing was scored
  std::int64_t n_targets = 0;
  double grad_norm = 0.0, clip = 1.0, lr = 0.0;
  std::uint64_t checksum = 0;          // of the reduced limbs
  std::uint64_t adapter_checksum = 0;  // after the step
  std::int64_t n_tokens = 0;           // in the global batch
  std::span<const std::int64_t> sample_ids;
  bool noted = false;   // what rank 0 gave to step(), on every rank
  bool raised = false;  // whether any rank did
};

// The micro-batch of an update that is looked at alone.
struct WatchedMicroBatch {
  std::int64_t index = -1;          // of the update's micro-batches; -1: none
  int owner = 0;                    // the rank that computes it; below valid only there
  std::int64_t begin = 0, end = 0;  // its samples: positions in the global batch; on every rank
  double nll = 0.0;                 // sum
  std::span<float> gradient;        // of that sum, as added up
};

struct EvalResult {
  double nll_sum = 0.0;
  std::int64_t n_tokens = 0;
  double loss() const { return nll_sum / static_cast<double>(n_tokens); }
};

class Trainer {
 public:
  // The references must outlive this object. held_out may be empty. spec must be resolved. ctx: of the host,
  // for what is observed there; the engine was made for batch_limits(train, held_out, execution.batch_micro).
  Trainer(const CpuContext& ctx, Communicator& comm, const RunSpec& spec, const Execution& execution,
          const ModelConfig& config, const LoraLayout& lora, const SampleSet& train,
          const SampleSet& held_out, std::unique_ptr<Engine> engine);
  // With the engine of the CPU.
  Trainer(const CpuContext& ctx, Communicator& comm, const RunSpec& spec, const Execution& execution,
          const ModelConfig& config, const Weights& weights, const LoraLayout& lora, const SampleSet& train,
          const SampleSet& held_out, std::int64_t n_recomputed = 0);

  // Gradient of update t's global batch, exactly reduced; gradient() and norms are valid after it. No step
  // yet.
  UpdateResult compute_gradient(std::int64_t t);
  // Clip and AdamW with what compute_gradient(t) gave; fills in the adapter's checksum, equal on all ranks.
  // observed: update_norms() are those of this update then.
  // note: rank 0's reaches all ranks, in result.noted; raise: any rank's, in result.raised.
  void step(std::int64_t t, UpdateResult& result, bool observed = false, bool note = false,
            bool raise = false);

  // With the adapter, probe() shows what there was to see.
  EvalResult evaluate(bool with_adapter);

  // Asked before every micro-batch of an update or evaluation. Where it says true on any rank, all ranks
  // throw AgreedError(kStopped) with the state as it was: at once on that rank, after their own micro-batches
  // on the others.
  void stop_where(std::function<bool()> asked) { stop_asked_ = std::move(asked); }
  // The state as it is in a checkpoint: adapter(), m() and v() are filled by the caller.
  void restore(std::int64_t steps_made, std::span<const double> update_norms);

  // Micro-batch `index` of the next compute_gradient() is kept in watched(). Takes the memory for it once.
  void watch(std::int64_t index);
  const WatchedMicroBatch& watched() const { return watched_; }
  std::int64_t n_micro_batches(std::int64_t t);
  const LoraLayout& lora() const { return lora_; }
  const SampleSet& training_samples() const { return train_; }

  // Of the last update and the last evaluation.
  const PhaseTimes& times() const { return times_; }

  std::int64_t steps_made() const { return steps_made_; }
  int threads() const { return ctx_.threads; }
  // Weights::memory_digest() of what the engine computes with; memory in use on a device.
  std::string base_digest(std::size_t i) const { return engine_->base_digest(i); }
  std::int64_t device_bytes() const { return engine_->device_bytes(); }
  // On the host; what is written to those of the first form counts from then on.
  std::span<float> adapter() { return engine_->write(StateArray::kAdapter); }
  std::span<float> m() { return engine_->write(StateArray::kM); }
  std::span<float> v() { return engine_->write(StateArray::kV); }
  std::span<const float> adapter() const { return engine_->read(StateArray::kAdapter); }
  std::span<const float> m() const { return engine_->read(StateArray::kM); }
  std::span<const float> v() const { return engine_->read(StateArray::kV); }
  // Divided by the count, not clipped.
  std::span<const float> gradient() const { return engine_->read(StateArray::kGradient); }
  std::span<const double> tensor_norms() const { return tensor_norms_; }  // 2-norm of each tensor's gradient
  // 2-norm of the change of each tensor in the last observed step; 0 before the first.
  std::span<const double> update_norms() const { return update_norms_; }
  // Frobenius norm of s B A of each module, of the adapter as it is (adapter_norms.hpp).
  std::span<const double> ba_norms();
  // Where execution asks for one and the held-out set has something to score.
  const std::optional<Probe>& probe() const { return probe_; }

 private:
  void throw_where_stopped() const;
  // Keeps the gradient of the micro-batch just computed; without scored tokens it is 0.
  void keep_watched(bool scored);
  void add_micro_batch(std::int64_t t, std::span<const std::int64_t> samples);
  std::string where(std::int64_t t, std::span<const std::int64_t> samples) const;

  const CpuContext& ctx_;
  Communicator& comm_;
  const RunSpec& spec_;
  const Execution& execution_;
  const LoraLayout& lora_;
  const SampleSet &train_, &held_out_;
  BatchOrder order_;
  std::unique_ptr<Engine> engine_;
  double nll_ = 0.0;  // of the micro-batch just computed, summed
  std::vector<double> tensor_norms_, update_norms_, ba_norms_;
  std::optional<Probe> probe_;
  std::vector<float> watched_gradient_;
  WatchedMicroBatch watched_;
  bool watching_ = false;
  MicroBatch micro_batch_;
  std::vector<int> owner_;
  std::vector<std::int64_t> held_out_ids_;
  std::int64_t steps_made_ = 0;
  PhaseTimes times_;
  std::function<bool()> stop_asked_;
};

}  // namespace tandem
