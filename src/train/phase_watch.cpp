#include "src/train/phase_watch.hpp"

#include <algorithm>
#include <cmath>

namespace tandem {

double PhaseWatch::median() const {
  std::vector<double> sorted = window_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::optional<double> PhaseWatch::add(double seconds, double operations, double at_s) {
  began_ = false;
  if (!(operations > 0.0) || !std::isfinite(seconds)) return std::nullopt;
  block_seconds_ += seconds;
  block_operations_ += operations;
  if (at_s - block_begin_s_ < kBlock_s) return std::nullopt;
  const auto named = judge(block_seconds_, block_operations_, at_s);
  block_seconds_ = block_operations_ = 0.0;
  block_begin_s_ = at_s;
  return named;
}

std::optional<double> PhaseWatch::judge(double seconds, double operations, double at_s) {
  const double rate = seconds / operations;
  const bool judged = window_.size() >= kEnough;
  const double norm = judged ? median() : 0.0;
  if (window_.size() < kWindow)
    window_.push_back(rate);
  else
    window_[next_++ % kWindow] = rate;
  if (!judged || rate <= kSlow * norm) {
    slow_ = 0;
    if (++normal_ >= kInARow) named_ = false;
    return std::nullopt;
  }
  normal_ = 0;
  began_ = slow_++ == 0;
  if (began_) {
    begin_s_ = block_begin_s_;
    spent_s_ = expected_s_ = 0.0;
  }
  spent_s_ += seconds;
  expected_s_ += norm * operations;
  if (named_ || slow_ < kInARow || spent_s_ - expected_s_ < kLeastShare * (at_s - begin_s_))
    return std::nullopt;
  named_ = true;
  return spent_s_ / expected_s_;
}

}  // namespace tandem
