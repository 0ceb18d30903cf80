// Whether one phase of a run has become slow, judged by its own past.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem {

// The measure is seconds per useful operation (a token, an update), its norm the median of the last 48.
// Longer sequences and other passing changes move the median along; single outliers neither move it nor are
// named. Updates that are shorter than kBlock_s are taken together until so much time has passed: a control
// group that takes the CPU away does so for part of every tenth of a second.
class PhaseWatch {
 public:
  static constexpr int kInARow = 8;     // slow ones that make a slow phase, normal ones that end it
  static constexpr double kSlow = 2.0;  // times the median
  static constexpr std::size_t kWindow = 48, kEnough = 24;
  static constexpr double kLeastShare = 0.05;  // of the time that passed, to be lost for a phase to be named
  static constexpr double kBlock_s = 0.2;

  // One time of the phase: it took `seconds` for `operations` (none: nothing is judged) and ended at `at_s`
  // of a clock. Returns how many times slower than its median the phase was where it is to be named: after
  // kInARow slow ones in a row whose lost time matters, once, and again only after kInARow normal ones.
  std::optional<double> add(double seconds, double operations, double at_s);
  // Whether that time was the first slow one of a row.
  bool began() const { return began_; }

 private:
  double median() const;
  std::optional<double> judge(double seconds, double operations, double at_s);

  double block_seconds_ = 0.0, block_operations_ = 0.0, block_begin_s_ = 0.0;
  std::vector<double> window_;  // a ring
  std::size_t next_ = 0;
  int slow_ = 0, normal_ = 0;
  bool named_ = false, began_ = false;
  double begin_s_ = 0.0;                     // when the last one before the slow ones ended
  double spent_s_ = 0.0, expected_s_ = 0.0;  // of the slow ones
};

}  // namespace tandem
