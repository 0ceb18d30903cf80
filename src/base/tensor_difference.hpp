// Two numbers that say how a tensor differs from its reference (DESIGN, "Observations").
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace tandem {

struct TensorDifference {
  double relative_error = 0.0;  // d = |g - g*| / (|g*| + floor)
  double projection = 1.0;      // s = <g, g*> / <g*, g*>; 1 where g* is zero
  double norm = 0.0;            // |g*|
  bool all_zero = true;         // g is exactly zero
  // |s - 1|, which has no meaning where the floor stands for the norm: so at most d.
  double bias(double floor) const {
    return norm > 0.0 ? std::abs(projection - 1) * norm / (norm + floor) : 0.0;
  }
};

template <class Values>
TensorDifference tensor_difference(const Values& found, const std::vector<double>& reference, double floor) {
  TensorDifference result;
  double error = 0.0, product = 0.0, square = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto g = static_cast<double>(found[i]);
    const double difference = g - reference[i];
    error += difference * difference;
    product += g * reference[i];
    square += reference[i] * reference[i];
    result.all_zero = result.all_zero && g == 0.0;
  }
  result.norm = std::sqrt(square);
  if (error != 0.0) result.relative_error = std::sqrt(error) / (result.norm + floor);
  if (square > 0.0) result.projection = product / square;
  return result;
}

}  // namespace tandem
