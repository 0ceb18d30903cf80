// What keeps the relative error of a next-to-zero gradient from meaning anything.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "src/mirror/mirror.hpp"

namespace tandem {

// A tensor whose gradient is nearly zero beside its kind's (A or B) has no meaningful relative error of its
// own: 1e-3 of the median norm of its kind is added to its norm.
class TensorFloors {
 public:
  TensorFloors(const std::vector<mirror::AdapterTensor>& tensors, const mirror::Tensors& reference) {
    std::vector<double> norms[2];
    for (std::size_t p = 0; p < tensors.size(); ++p) {
      double square = 0.0;
      for (const double x : reference[p]) square += x * x;
      kind_.push_back(tensors[p].name.ends_with(".lora_B.weight"));
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
  std::vector<std::size_t> kind_;
  double floor_[2] = {0.0, 0.0};
};

}  // namespace tandem
