#include "src/audit/mirror_memory.hpp"

#include <algorithm>

#include "src/audit/mirror_thread.hpp"

namespace tandem {

std::int64_t mirror_memory_bytes(const MirrorSizes& s) {
  constexpr std::int64_t kDouble = 8, kFloat = 4;
  const std::int64_t t = s.longest_sample, adapter = kDouble * s.adapter_elements;

  // A gradient in work: the sum, every layer's input, and one layer on its tape with what comes back: the
  // residual stream and its norms, projections with their adapters, a head's scores and probabilities, the
  // MLP.
  const std::int64_t inputs = kDouble * s.layers * t * s.hidden;
  const std::int64_t tape =
      2 * kDouble * (t * (10 * s.hidden + 4 * s.qkv + 8 * s.intermediate) + 3 * s.heads * t * t);
  const std::int64_t widened = kDouble * s.hidden * std::max(s.intermediate, s.qkv);
  std::int64_t bytes = s.model_file_bytes + adapter + inputs + tape + 2 * widened;

  // Audits. Jobs: one in work, those that wait, one that is filled; each holds adapter, moments and gradient
  // before the step and the first three after it. Beside them adapter and moments widened, and while
  // thresholds are measured an exact and a rounded gradient.
  constexpr auto kJobs = static_cast<std::int64_t>(MirrorThread::kWaiting) + 2;
  if (s.audits) bytes += kJobs * 7 * kFloat * s.adapter_elements + 5 * adapter;
  // The free run's adapter and moments, before a step and after it.
  if (s.free_run) bytes += 6 * adapter;
  // A snapshot's four groups on their way: as a message, packed, with others, and both again on rank 0.
  if (s.free_run && s.snapshots) bytes += 6 * 4 * adapter;
  return bytes;
}

}  // namespace tandem
