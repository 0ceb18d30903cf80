// Small text helpers; GCC 12 has no <format>.
#pragma once

#include <sstream>
#include <string>

namespace tandem {

// cat("layer ", 3, ": ", 0.5) == "layer 3: 0.5"
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace tandem
