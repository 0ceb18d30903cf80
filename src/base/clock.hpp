// Time that only goes forward, for durations.
#pragma once

#include <chrono>

namespace tandem {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tandem
