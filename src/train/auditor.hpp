// The mirror in step with the run: which updates are audited, what of them goes to the mirror's rank, and
// what comes back to rank 0. Collective: all ranks call the same functions at the same updates. Changes no
// number of training.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "src/audit/messages.hpp"
#include "src/audit/mirror_thread.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/run_log.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

// The rank beside which the mirror computes. Throws kUsage where the world has no such rank.
int mirror_rank(const Execution& execution, int ranks);

// What the mirror of this run is given. cpus: those kept for it.
MirrorOptions mirror_options(const Config& config, std::vector<int> cpus);

class Auditor {
 public:
  // thread: on the mirror's rank; recorder: on rank 0; nullptr elsewhere. trainer: what an audit looks at in
  // native's memory. The references must outlive this object.
  Auditor(Communicator& comm, const Execution& execution, RunLog& log, const Weights& weights,
          Trainer& trainer, std::unique_ptr<MirrorThread> thread, std::unique_ptr<MirrorRecorder> recorder,
          std::function<bool()> stop = {});

  // Waits until the mirror has read its inputs and told its cost. resumed: where a resumed run stands; the
  // thread was given the mirror's state then.
  void begin(const CheckpointState* resumed = nullptr);
  // Around update t.
  void before_gradient(std::int64_t t, Trainer& trainer);
  void before_step(Trainer& trainer, const UpdateResult& result);
  void after_step(std::int64_t t, Trainer& trainer);
  // Of an evaluation: the nll sums with the adapter and, at the beginning, without it. Equal to the bit while
  // the adapter is too large for rounding to hide it, they say that the adapter took no part: EXACT.
  void after_evaluation(std::int64_t t, double nll_sum, double nll_sum_off, Trainer& trainer);
  // After update `last`: the mirror ends its work; what it still has to say is recorded. Throws
  // AgreedError(kDisagreement) where a mismatch ends the run, as after_step does. Each time that it has
  // waited in vain it calls while_waiting, on all ranks.
  void finish(std::int64_t last, const std::function<void()>& while_waiting = {});
  // For a checkpoint: what the mirror has said so far is recorded and published, what is left of it goes into
  // state and, on rank 0, into the bytes returned (MirrorState).
  std::vector<std::uint8_t> save(CheckpointState& state);
  // After an error: what has come is kept.
  void save_after_failure() noexcept;

 private:
  bool here() const { return comm_.rank() == rank_; }
  bool audited(std::int64_t t) const { return execution_.audits() && t % execution_.mirror_every == 0; }
  // All of them, as they lie in this rank's memory, to be looked at by the mirror and recorded.
  void give_base_weights(std::int64_t step, bool recorded = true);
  BaseTensorInMemory in_memory(std::size_t i) const;  // base tensor i
  // Some module's s B A is no trifle beside its weights.
  bool adapter_matters(Trainer& trainer) const;
  // True once the mirror has nothing left to do. state: as in MirrorThread::take; filled on the mirror's
  // rank.
  bool exchange(double wait_s, MirrorState* state = nullptr);
  bool stopped() const { return stop_ && stop_(); }

  Communicator& comm_;
  const Execution& execution_;
  RunLog& log_;
  const Weights& weights_;
  Trainer& trainer_;
  std::unique_ptr<MirrorThread> thread_;
  std::unique_ptr<MirrorRecorder> recorder_;
  std::function<bool()> stop_;
  int rank_;
  bool skipped_ = false;       // the update under way: on the mirror's rank
  bool closed_ = false;        // the base weights at the end have been given
  bool auditing_ = false;      // the update under way
  std::int64_t n_audits_ = 0;  // begun so far: which micro-batch and base tensor are next
  UpdateJob job_;              // on the mirror's rank
  std::optional<std::array<std::uint64_t, 3>> left_;  // there: of the state that the update before left
};

}  // namespace tandem
