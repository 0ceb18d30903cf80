// Shared by the tests of CUDA kernels: drawn numbers, matrices in a device's memory, the bit contract, and
// the comparison with a float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda_context.hpp"
#include "src/base/random.hpp"
#include "src/mirror/matrix.hpp"
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
mirror::Matrix drawn(const std::string& name, std::int64_t rows, std::int64_t cols, double size = 1.0) {
  const RandomStream stream(3, name);
  mirror::Matrix m(rows, cols);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    m.data()[i] = static_cast<double>(
        value_of(element_of<T>(size * (2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0))));
  return m;
}

// How an operand lies in memory.
struct Place {
  std::int64_t padding = 0, offset = 0;  // elements: between rows, before the first
};
inline constexpr Place kPlaces[] = {{0, 0}, {1, 1}, {7, 3}};

// A matrix in an allocation of its own, with what these tests do with it.
template <class T>
class OnDevice : public DeviceMatrix<T> {
 public:
  OnDevice(const CudaContext& ctx, const mirror::Matrix& values, Place place = {})
      : OnDevice(ctx, values.rows(), values.cols(), place) {
    this->set(std::vector<double>(values.data(), values.data() + values.size()));
  }
  // For results: NaN.
  OnDevice(const CudaContext& ctx, std::int64_t rows, std::int64_t cols, Place place = {})
      : DeviceMatrix<T>(ctx, rows, cols, place.padding, place.offset) {}

  // Row by row; fails the test where something between the rows has been written to.
  std::vector<T> elements() const {
    EXPECT_TRUE(this->padding_intact());
    return DeviceMatrix<T>::elements();
  }
};

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

// |got - want| <= gamma(roundings) size by element, and then rounded to T. NaN anywhere fails.
template <class T>
void expect_within(const std::vector<T>& got, const mirror::Matrix& want, const mirror::Matrix& size,
                   double roundings, const std::string& what) {
  ASSERT_EQ(static_cast<std::int64_t>(got.size()), want.size()) << what;
  ASSERT_EQ(size.size(), want.size()) << what;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double is = static_cast<double>(value_of(got[static_cast<std::size_t>(i)])),
                 should = want.data()[i];
    const double computed = gamma(roundings) * size.data()[i];
    const double allowed = computed + kStored<T> * (std::abs(should) + computed);
    ASSERT_LE(std::abs(is - should), allowed) << what << "[" << i / want.cols() << ", " << i % want.cols()
                                              << "] is " << is << ", should be " << should;
  }
}

}  // namespace tandem::testing
