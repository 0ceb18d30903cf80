// The mirror in step with the run: which updates are audited, what of them goes to the mirror's rank, and
// what comes back to rank 0. Collective: all ranks call the same functions at the same updates. Changes no
// number of training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
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
  // thread: on the mirror's rank; recorder: on rank 0; nullptr elsewhere. weights: what an audit looks at in
  // native's memory. The references must outlive this object.
  Auditor(Communicator& comm, const Execution& execution, RunLog& log, const Weights& weights,
          std::unique_ptr<MirrorThread> thread, std::unique_ptr<MirrorRecorder> recorder);

  // Waits until the mirror has read its inputs and told its cost.
  void begin();
  // Around update t.
  void before_gradient(std::int64_t t, Trainer& trainer);
  void before_step(std::int64_t t, Trainer& trainer, const UpdateResult& result);
  void after_step(std::int64_t t, Trainer& trainer);
  // The mirror ends its work; what it still has to say is recorded. Throws AgreedError(kDisagreement) where a
  // mismatch ends the run, as after_step does.
  void finish();
  // After an error: what has come is kept.
  void save_after_failure() noexcept;

 private:
  bool here() const { return comm_.rank() == rank_; }
  // True once the mirror has nothing left to do.
  bool exchange(double wait_s);

  Communicator& comm_;
  const Execution& execution_;
  RunLog& log_;
  const Weights& weights_;
  std::unique_ptr<MirrorThread> thread_;
  std::unique_ptr<MirrorRecorder> recorder_;
  int rank_;
  bool auditing_ = false;      // the update under way
  std::int64_t n_audits_ = 0;  // begun so far: which micro-batch and base tensor are next
  UpdateJob job_;              // on the mirror's rank
};

}  // namespace tandem
