// What of the mirror beside a run goes into a checkpoint: its thresholds and counts, the audits that are not
// done yet, and where its free run stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/audit/free_run.hpp"
#include "src/audit/thresholds.hpp"
#include "src/audit/update_job.hpp"

namespace tandem {

struct MirrorState {
  // An audit, and the skipped updates whose messages wait for it.
  struct Waiting {
    std::shared_ptr<const UpdateJob> job;
    std::vector<std::int64_t> skipped_after;
  };

  std::optional<Thresholds> thresholds;  // raised so far; none: not measured yet
  std::deque<bool> missed;               // MismatchPolicy's
  std::int64_t snapshots_left = 3;       // of failed audits: disks are finite
  std::int64_t audits = 0, skipped = 0, measured_again = 0, most_waiting = 0;
  double audit_seconds = 0.0;
  std::deque<Waiting> jobs;
  std::deque<BaseWeights> weights;
  std::shared_ptr<const FreeRun::State> free_run;  // nullptr: none, or not begun
};

// With every bit of every number.
std::vector<std::uint8_t> mirror_state_bytes(const MirrorState& state);
// Throws kInput where these are not such bytes.
MirrorState parse_mirror_state(std::span<const std::uint8_t> bytes);

}  // namespace tandem
