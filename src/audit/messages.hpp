// What the mirror's thread tells rank 0: rows for the trajectories and lines for the log, as bytes that can
// travel between ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/trajectory.hpp"
#include "src/audit/check_update.hpp"
#include "src/audit/update_job.hpp"
#include "src/mirror/mirror.hpp"

namespace tandem {

using MirrorMessage = std::vector<std::uint8_t>;

// The free run's first message: everything that does not change.
MirrorMessage start_message(const mirror::Mirror& mirror);
// state: after the step.
MirrorMessage update_message(const mirror::Mirror& mirror, std::int64_t t, const mirror::AdapterState& state,
                             const mirror::BatchGradient& batch, const mirror::UpdateResult& result,
                             bool observed, double seconds);
MirrorMessage evaluation_message(const mirror::Mirror& mirror, std::int64_t t, const mirror::Tensors& adapter,
                                 const mirror::Evaluation& evaluation, const mirror::Probe& probe,
                                 std::span<const double> update_norm, double seconds);
MirrorMessage adapter_off_message(double start, double end);
// before: the state before the step of update t; the gradient is divided by the count here.
MirrorMessage snapshot_message(std::int64_t t, const mirror::AdapterState& before,
                               const mirror::BatchGradient& batch, const std::vector<std::string>& what);
MirrorMessage free_run_ended_message();
// job: what a snapshot of the update needs; nullptr: none is wanted.
MirrorMessage audit_message(const AuditOutcome& outcome, const UpdateJob* job);
MirrorMessage base_weights_message(std::int64_t step, std::span<const BaseTensorInMemory> tensors);
MirrorMessage line_message(const std::string& text, bool warning);
// Sizes of the work done: goes to the trajectory's provenance.
MirrorMessage fact_message(const std::string& name, double value);

// Rank 0: puts messages where they belong.
class MirrorRecorder {
 public:
  struct Free {  // what mirror.h5 is written with
    std::filesystem::path file;
    TrajectoryHeader header;  // of the mirror's file
    double flush_s;
    std::filesystem::path begin = {};  // the file to be continued; empty: a new one
    std::string resumed = {};          // said in its provenance then
  };
  // native: outlives this object. sizes: elements of each adapter tensor, in digest order. say(text, warning)
  // writes a line of the log.
  MirrorRecorder(TrajectoryWriter& native, std::vector<std::size_t> sizes, std::optional<Free> free,
                 std::function<void(const std::string&, bool)> say);
  void apply(const MirrorMessage& message);
  // The free run's file as far as it went.
  void publish();

 private:
  struct Handlers;
  TrajectoryWriter& native_;
  std::vector<std::size_t> sizes_;
  std::optional<Free> free_;
  std::unique_ptr<TrajectoryWriter> writer_;  // of the free run, once it has begun
  std::function<void(const std::string&, bool)> say_;
};

}  // namespace tandem
