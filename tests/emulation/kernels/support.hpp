// Shared by the tests of CUDA kernels that are held to the mirror: its matrices in a device's memory, and the
// comparison with a float64 reference.
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
#include "src/mirror/matrix.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/kernels/bit_contract.hpp"

namespace tandem::testing {

// As drawn_values(), as a matrix.
template <class T>
mirror::Matrix drawn(const std::string& name, std::int64_t rows, std::int64_t cols, double size = 1.0) {
  const std::vector<double> values = drawn_values<T>(name, rows * cols, size);
  mirror::Matrix m(rows, cols);
  std::copy(values.begin(), values.end(), m.data());
  return m;
}

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
