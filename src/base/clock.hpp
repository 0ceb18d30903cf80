// The time: that only goes forward, for durations; and of the calendar.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

namespace tandem {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// UTC, as 2025-01-31T12:00:00Z.
inline std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace tandem
