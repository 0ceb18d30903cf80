// The updates and evaluations of a run, in order, recorded and reported as they come.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/auditor.hpp"
#include "src/train/recorder.hpp"
#include "src/train/run.hpp"
#include "src/train/run_log.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

class Loop {
 public:
  // recorder: rank 0's; nullptr elsewhere. auditor: nullptr without the mirror. The references must outlive
  // this object.
  Loop(const Config& config, Communicator& comm, Communicator& node, RunLog& log, Trainer& trainer,
       Recorder* recorder, Auditor* auditor, bool evaluates);

  // Collective.
  RunSummary run();

 private:
  void update(std::int64_t t);
  void evaluate(std::int64_t t);
  bool evaluated(std::int64_t t) const;  // t >= 1
  std::string progress_text(std::int64_t t, const UpdateResult& result) const;

  const Config& config_;
  Communicator& comm_;
  Communicator& node_;
  RunLog& log_;
  Trainer& trainer_;
  Recorder* recorder_;
  Auditor* auditor_;
  bool evaluates_;
  EvalResult off_;  // without the adapter, at the beginning
  RunSummary summary_;
};

}  // namespace tandem
