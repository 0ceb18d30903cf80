// How a tensor differs from its reference, in two numbers (DESIGN, "Observations"), and the floor without
// which the relative error of a next-to-zero gradient would mean nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
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

// A tensor whose gradient is nearly zero beside its kind's (A or B) has no meaningful relative error of its
// own: 1e-3 of the median norm of its kind is added to its norm.
class TensorFloors {
 public:
  // The tensors that `reference` holds: their names, or what has a name.
  template <class Tensors>
  TensorFloors(const Tensors& tensors, const std::vector<std::vector<double>>& reference) {
    std::vector<double> norms[2];
    std::size_t p = 0;
    for (const auto& tensor : tensors) {
      double square = 0.0;
      for (const double x : reference[p++]) square += x * x;
      kind_.push_back(name_of(tensor).ends_with(".lora_B.weight"));
      norms[kind_.back()].push_back(std::sqrt(square));
    }
    for (int kind = 0; kind < 2; ++kind) {
      if (norms[kind].empty()) continue;
      const auto middle = norms[kind].begin() + static_cast<std::ptrdiff_t>(norms[kind].size() / 2);
      std::nth_element(norms[kind].begin(), middle, norms[kind].end());
      floor_[kind] = 1e-3 * *middle;
    }
  }
  double of(std::size_t p) const { return floor_[kind_[p]]; }

 private:
  static const std::string& name_of(const std::string& name) { return name; }
  static const std::string& name_of(const auto& tensor) { return tensor.name; }

  std::vector<std::size_t> kind_;
  double floor_[2] = {0.0, 0.0};
};

}  // namespace tandem
