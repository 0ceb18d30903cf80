// Small helpers for numbers of two stacks.
#pragma once

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

namespace tandem {

// "0.0134", "1.2e-08": three digits.
inline std::string short_number(double x) {
  std::ostringstream out;
  out.precision(3);
  out << x;
  return out.str();
}

// Equal as numbers, or both NaN.
inline bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// |a - b| / |b|; 0 where both are the same or both NaN, NaN where one is NaN, infinite where only b is 0.
inline double relative_difference(double a, double b) {
  if (same_number(a, b)) return 0.0;
  return std::abs(a - b) / std::abs(b);
}

// |a - b| in units of the last place of the larger.
inline double ulps_apart(double a, double b) {
  if (same_number(a, b)) return 0.0;
  const double size = std::fmax(std::abs(a), std::abs(b));
  return std::abs(a - b) / (std::nextafter(size, std::numeric_limits<double>::infinity()) - size);
}

}  // namespace tandem
