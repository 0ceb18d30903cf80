// Products in float64, each element with a bound of the error that a device's may have.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/product.hpp"
#include "tests/emulation/device_matrix.hpp"

namespace tandem::testing {

inline constexpr double kUnitF32 = 0x1p-24, kUnitBf16 = 0x1p-8;
// An input rounded to TF32's 10 bits behind the first, or cut off there.
inline constexpr double kUnitTf32 = 0x1p-10;

// One term's float64 sums, and the same of absolute values, from the elements as they lie on the device.
struct Reference {
  Reference(std::int64_t rows_, std::int64_t cols_)
      : rows(rows_), cols(cols_), sum(static_cast<std::size_t>(rows * cols)), size(sum.size()) {}

  template <class T>
  void start(const DeviceMatrix<T>& base) {
    const std::vector<double> values = base.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = values[i], size[i] = std::abs(values[i]);
  }
  template <class T>
  void add(const DeviceMatrix<T>& a, Op op_a, const DeviceMatrix<T>& b, Op op_b, double scale = 1.0,
           std::int64_t c_begin = 0) {
    const std::int64_t k = op_a == Op::kPlain ? a.view().cols : a.view().rows;
    const std::int64_t width = op_b == Op::kPlain ? b.view().cols : b.view().rows;
    const std::vector<double> x = a.values(), y = b.values();
    const auto at = [](const std::vector<double>& v, std::int64_t stride, Op op, std::int64_t r,
                       std::int64_t c) {
      return v[static_cast<std::size_t>(op == Op::kPlain ? r * stride + c : c * stride + r)];
    };
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        double total = 0.0, absolute = 0.0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double product = at(x, a.view().cols, op_a, i, p) * at(y, b.view().cols, op_b, p, j);
          total += product, absolute += std::abs(product);
        }
        const auto to = static_cast<std::size_t>(i * cols + c_begin + j);
        sum[to] += scale * total, size[to] += std::abs(scale) * absolute;
      }
    n_rounded += k + 3;  // products, sums, scale, the addition to c
    ++n_terms;
  }

  std::int64_t rows, cols;
  std::vector<double> sum, size;
  std::int64_t n_rounded = 0, n_terms = 0;
};

// |error| <= (gamma_n + what inputs' rounding adds + a rounding to c's format a term) * sum of absolute
// values, n: all float32 roundings on the way of one element, of
// sum_unit each: tensor cores cut sums off instead of rounding them.
template <class T>
void expect_near(const DeviceMatrix<T>& c, const Reference& want, double input_unit = 0.0,
                 double sum_unit = kUnitF32) {
  const double n = static_cast<double>(want.n_rounded) * sum_unit;
  const double output_unit = std::is_same_v<T, Bf16> ? kUnitBf16 : 0.0;
  const double relative = n / (1.0 - n) + (2.0 + input_unit) * input_unit +
                          1.01 * static_cast<double>(want.n_terms) * output_unit;
  const std::vector<double> got = c.values();
  ASSERT_EQ(got.size(), want.sum.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want.sum[i]), relative * want.size[i]) << "element " << i << ": " << got[i];
  EXPECT_TRUE(c.padding_intact());
}

}  // namespace tandem::testing
