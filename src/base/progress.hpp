// A line that tells how far a long piece of work is: a bar, the share done and, once it can be guessed, the
// time left.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace tandem {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what) : what_(std::move(what)) {}
  // share: 0 to 1. "tokenising rows.jsonl [######--------------]  30 %  7 s left"
  std::string line(double share) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return line(share, seconds);
  }
  // The same at a given time since the start, in seconds.
  std::string line(double share, double seconds) const {
    constexpr int kWidth = 20;
    const int full = static_cast<int>(share * kWidth);
    const std::string percent = std::to_string(static_cast<int>(share * 100));
    std::string text = what_ + " [" + std::string(full, '#') + std::string(kWidth - full, '-') + "] " +
                       std::string(3 - std::min<std::size_t>(3, percent.size()), ' ') + percent + " %";
    if (share > 0 && share < 1 && seconds > 1)
      text += "  " + std::to_string(static_cast<long>(seconds * (1 - share) / share + 0.5)) + " s left";
    return text;
  }

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
