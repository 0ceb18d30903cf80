// Gradients by 4th-order central differences.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

namespace tandem::mirror {

// Truncation 4 h^4 f^(5) / 5!, rounding about u |f| / h, u = 2^-53: with f and its derivatives around 1 and
// h = 2^-11 both are below 1e-12.
inline constexpr double kStep = 0x1p-11;

// df/dx of each element of `x`, which is restored.
inline std::vector<double> finite_differences(std::vector<double>& x, const std::function<double()>& f,
                                              double h = kStep) {
  std::vector<double> gradient;
  for (double& element : x) {
    const double center = element;
    const auto at = [&](double offset) {
      element = center + offset;
      return f();
    };
    const double difference = 8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h));
    gradient.push_back(difference / (12 * h));
    element = center;
  }
  return gradient;
}

// |a - b| / |b| in the 2-norm.
inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace tandem::mirror
