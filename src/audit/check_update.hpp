// The verdict on one update: native's numbers against the mirror's (DESIGN, "Observations").
//  EXACT: sample ids, samples, counts, zeros, the model's configuration, base weights in memory, what adapter
//  and moments the update starts from.
//  BOUND: what follows from native's own numbers by a few operations: norm, clip, learning rate, AdamW's
//  step. CALIBRATED: loss and gradient, by thresholds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/observations.hpp"
#include "src/audit/thresholds.hpp"
#include "src/audit/update_job.hpp"
#include "src/mirror/mirror.hpp"

namespace tandem {

struct AuditOutcome {
  std::int64_t step = 0;
  AuditScope scope = AuditScope::kBatch;
  std::int64_t micro_batch = -1;
  double loss_error = 0.0, norm_error = 0.0;  // relative; NaN: not computed
  // Per tensor, in digest order: d, s, threshold of d in force, largest error of AdamW's step by component.
  std::vector<double> relative_error, projection, bound, optimizer_error;
  Verdict verdict = Verdict::kPass;
  std::string note;  // what failed: the gravest first, "; " between; "" with PASS

  AuditRow row() const;
};

// AdamW in isolation: |x - x*| <= kStepUnits u (|what is added up to x|), u = 2^-24.
inline constexpr double kStepUnits = 8.0;

// Base tensors in native's memory that are not what the mirror read: the first and how many more; "" for
// none.
std::string differing_weights(const mirror::Mirror& mirror, std::span<const BaseTensorInMemory> tensors);

// Keys by which native's echo of the model's configuration differs from the mirror's, with both values; ""
// for none. The longest text that the model was made for is no part of what is computed.
std::string differing_keys(const std::string& native, const std::string& mirror);

AuditOutcome check_update(const mirror::Mirror& mirror, const UpdateJob& job, const Thresholds& thresholds);

// The same, but how far rounding carries depends on the adapter as it has become: before CALIBRATED is said,
// what it does to this very update is measured and the thresholds are raised to it (a fault in native has no
// part in that measurement), so `measured` counts.
AuditOutcome audit_update(const mirror::Mirror& mirror, const UpdateJob& job, const std::string& precision,
                          Thresholds& thresholds, std::int64_t& measured);

}  // namespace tandem
