// The updates and evaluations of a run, in order, recorded and reported as they come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "src/base/error.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/auditor.hpp"
#include "src/train/recorder.hpp"
#include "src/train/run.hpp"
#include "src/train/run_log.hpp"
#include "src/train/slow_phases.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

class Loop {
 public:
  // recorder: rank 0's; nullptr elsewhere. auditor: nullptr without the mirror. control and begin: as in
  // run_training; begin is nullptr for a new run. The references must outlive this object.
  Loop(const Config& config, Communicator& comm, Communicator& node, const std::string& host, RunLog& log,
       Trainer& trainer, Recorder* recorder, Auditor* auditor, bool evaluates, const RunControl& control,
       const CheckpointState* begin);

  // Collective. What ends it early as an AgreedError leaves a checkpoint where the state is sound; a signal's
  // is kStopped and says so.
  RunSummary run();

 private:
  void updates_and_evaluations();
  [[noreturn]] void end_early(const AgreedError& error);
  // A checkpoint of where the run stands. Collective.
  void save();
  void save_if_due_while_waiting();
  bool due(std::int64_t t) const;  // rank 0's clock, or the number of updates
  bool update(std::int64_t t);     // true where a checkpoint is due after it
  void evaluate(std::int64_t t);
  // Records and says which phases have become slow on which rank. Collective.
  void name_slow_phases();
  bool evaluated(std::int64_t t) const;
  std::string progress_text(std::int64_t t, const UpdateResult& result) const;

  const Config& config_;
  Communicator& comm_;
  Communicator& node_;
  RunLog& log_;
  Trainer& trainer_;
  Recorder* recorder_;
  Auditor* auditor_;
  bool evaluates_;
  const RunControl& control_;
  SlowPhases slow_;
  EvalResult off_;  // without the adapter, at the beginning
  RunSummary summary_;
  // Where the run stands; update and evaluated say what has been recorded.
  CheckpointState at_;
  std::optional<std::pair<std::int64_t, bool>> saved_;  // of the last checkpoint
  double saved_s_;                                      // when that was
  bool sound_ = true;                                   // adapter and moments are those after at_.update
  bool save_failed_ = false;                            // and would fail again
};

}  // namespace tandem
