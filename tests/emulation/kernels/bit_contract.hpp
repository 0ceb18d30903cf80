// Shared by the tests of CUDA kernels, without a library of matrices: the bit contract, bounds of roundings,
// drawn numbers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda_context.hpp"
#include "src/base/random.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {

inline constexpr double kU = 0x1p-24;  // unit roundoff of float32
// Of the format that a result is stored in, beyond float32's own.
template <class T>
inline constexpr double kStored = sizeof(T) == sizeof(Bf16) ? 0x1p-8 : 0.0;
template <class T>
inline constexpr int kUnit = 16 / static_cast<int>(sizeof(T));  // elements a thread takes at a time

// k roundings, or a sum of k terms (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1).
inline double gamma(double k) { return k * kU / (1.0 - k * kU); }

// Additions behind one another in a row's sum: a thread's own terms, then two times log2(32).
inline int additions(std::int64_t cols, int threads, int unit = 4) {
  const std::int64_t units = (cols + unit - 1) / unit;
  return static_cast<int>((units + threads - 1) / threads) * unit + 10;
}

using Formats = ::testing::Types<float, Bf16>;
struct FormatNames {
  template <class T>
  static std::string GetName(int) {
    return sizeof(T) == sizeof(Bf16) ? "Bf16" : "Float32";
  }
};

// Uniform in (-size, size), by name, as T stores them.
template <class T>
std::vector<double> drawn_values(const std::string& name, std::int64_t count, double size = 1.0) {
  const RandomStream stream(3, name);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(
        value_of(element_of<T>(size * (2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0)))));
  return values;
}

// How an operand lies in memory.
struct Place {
  std::int64_t padding = 0, offset = 0;  // elements: between rows, before the first
};
inline constexpr Place kPlaces[] = {{0, 0}, {1, 1}, {7, 3}};

// The bit contract: run(place) gives the same bits wherever operands lie, in whatever order blocks and
// threads run.
template <class Run>
auto same_everywhere(const Run& run) {
  emulation::set_order({});
  const auto first = run(Place{});
  for (const emulation::Order order : emulation::kOrders)
    for (const Place place : kPlaces) {
      emulation::set_order(order);
      EXPECT_TRUE(same_bytes(first, run(place)))
          << "order " << order.kind << ", padding " << place.padding << ", offset " << place.offset;
    }
  emulation::set_order({});
  return first;
}

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace tandem::testing
