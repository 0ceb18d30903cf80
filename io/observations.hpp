// What a trajectory holds beside updates and losses: rows of /probe, /activation, /audit and /load/memory
// (io/FORMAT.md). All spans belong to the caller.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tandem {

inline constexpr std::int64_t kMostProbeTokens = 512;
inline constexpr std::int64_t kTopLogits = 8;

// The scored tokens that the probe looks at, [K] each.
struct ProbeTokens {
  std::vector<std::int64_t> sample, position, target;
  std::int64_t size() const { return static_cast<std::int64_t>(target.size()); }
};

// The probe at one evaluation.
struct ProbeRow {
  std::span<const double> nll, target_logit;  // [K]
  std::span<const std::int64_t> topk_id;      // [K, kTopLogits], -1 beyond the vocabulary
  std::span<const double> topk_logit;         // [K, kTopLogits], NaN beyond the vocabulary
  std::span<const double> rms, absmax;        // [L]
};

// Norms of the adapter at one evaluation.
struct NormRow {
  std::span<const double> ba_norm;      // [M]
  std::span<const double> update_norm;  // [P]
};

enum class AuditScope : std::int8_t { kBatch = 0, kMicroBatch = 1 };
enum class Verdict : std::int8_t { kPass = 0, kCalibrated = 1, kBound = 2, kExact = 3, kSkipped = 4 };
// In the order of their values.
inline constexpr const char* kAuditScopeNames[] = {"batch", "microbatch"};
inline constexpr const char* kVerdictNames[] = {"PASS", "CALIBRATED", "BOUND", "EXACT", "SKIPPED"};
inline const char* name_of(Verdict verdict) { return kVerdictNames[static_cast<int>(verdict)]; }

// The mirror's check of one update. NaN: not computed; an empty span is a row of NaN.
struct AuditRow {
  std::int64_t step = 0;
  AuditScope scope = AuditScope::kBatch;
  std::int64_t micro_batch = -1;  // of the update, from 0; -1 with scope batch
  double loss_error = std::numeric_limits<double>::quiet_NaN();
  double norm_error = std::numeric_limits<double>::quiet_NaN();
  std::span<const double> relative_error, projection, bound, optimizer_error;  // [P]
  Verdict verdict = Verdict::kPass;
  std::string note;
};

}  // namespace tandem
