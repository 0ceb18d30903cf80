// When failed audits end a run: what is exact or bounded at once; what is calibrated, and may by chance lie
// outside, where kMisses of the last kOf audits failed.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "io/observations.hpp"

namespace tandem {

class MismatchPolicy {
 public:
  static constexpr std::size_t kMisses = 2, kOf = 5;

  // missed: of the audits before, the oldest first, as missed() gives them.
  explicit MismatchPolicy(std::deque<bool> missed = {}) : missed_(std::move(missed)) {}
  const std::deque<bool>& missed() const { return missed_; }

  // True where the run ends with this verdict. Skipped audits do not count.
  bool ends_with(Verdict verdict) {
    if (verdict == Verdict::kExact || verdict == Verdict::kBound) return true;
    if (verdict == Verdict::kSkipped) return false;
    missed_.push_back(verdict == Verdict::kCalibrated);
    if (missed_.size() > kOf) missed_.pop_front();
    std::size_t misses = 0;
    for (const bool missed : missed_) misses += missed;
    return misses >= kMisses;
  }

 private:
  std::deque<bool> missed_;
};

}  // namespace tandem
