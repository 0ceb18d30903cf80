// What one check of `tandem doctor` finds on one rank.
#pragma once

#include <cstdio>
#include <string>

#include "src/base/error.hpp"

namespace tandem {

struct Finding {
  enum class State {
    kOk,
    kNote,  // a run works, but slowly or not as it could
    kFail,  // a run would end with an error of `kind`
  };
  State state = State::kOk;
  std::string text;  // what was seen; and, unless ok, what to do
  ErrorKind kind = ErrorKind::kDevice;
};

inline Finding ok(const std::string& text) { return {Finding::State::kOk, text}; }
inline Finding note(const std::string& text) { return {Finding::State::kNote, text}; }
inline Finding failure(ErrorKind kind, const std::string& text) {
  return {Finding::State::kFail, text, kind};
}

// 1234567 KiB and the like as people say it: "1.18 GiB", "64 MiB".
inline std::string size_text(double bytes) {
  char text[40];
  if (bytes >= 0x1p30)
    std::snprintf(text, sizeof text, "%.2f GiB", bytes / 0x1p30);
  else
    std::snprintf(text, sizeof text, "%.0f MiB", bytes / 0x1p20);
  return text;
}

}  // namespace tandem
