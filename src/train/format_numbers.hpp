#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace tandem {

// printf into a string, for the numbers of log lines.
template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

}  // namespace tandem
