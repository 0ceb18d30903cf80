// Names the phases of a run that become slow on this rank (phase_watch.hpp), with what was seen meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/strain.hpp"
#include "io/trajectory.hpp"
#include "src/train/phase_watch.hpp"

namespace tandem {

// Of one rank: its own work, without waiting for others.
struct PhaseTimes {
  double gradient_s = 0.0, evaluation_s = 0.0;  // the rank's micro-batches
  std::int64_t gradient_tokens = 0, evaluation_tokens = 0;
  double all_reduce_s = 0.0;  // after all ranks have come
  double step_s = 0.0;        // from the reduced sum to the new adapter
};

// The whole update, with waiting for others: equal on all ranks.
struct UpdateTime {
  double seconds = 0.0;
  std::int64_t tokens = 0;  // of the global batch
};

class SlowPhases {
 public:
  SlowPhases(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  // After update `step`, and after an evaluation that follows it. at_s: now_s().
  void update(std::int64_t step, const PhaseTimes& times, const UpdateTime& whole, double at_s);
  void evaluation(std::int64_t step, const PhaseTimes& times, double at_s);

  // Whether there is something to say; and what, as text that travels to rank 0, which is then forgotten.
  // With it goes how this rank has fared lately: a whole update that is slow may be so for one rank's sake.
  bool any() const { return !named_.empty(); }
  std::string take();
  // What all ranks took, in rank order.
  static std::vector<SlowRow> read(const std::vector<std::string>& taken);
  // For the log.
  static std::string line(const SlowRow& row);

 private:
  enum Phase { kGradient, kAllReduce, kStep, kEvaluation, kUpdate, kPhases };
  void add(Phase phase, std::int64_t step, double seconds, double operations, double at_s);

  int rank_;
  std::string host_;
  std::array<PhaseWatch, kPhases> watches_;
  std::array<Strain, kPhases> begin_;  // of what is slow now
  Strain lately_, before_;             // marks of the last seconds
  std::vector<SlowRow> named_;
};

}  // namespace tandem
