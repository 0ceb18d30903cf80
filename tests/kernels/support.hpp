// Shared by the kernel tests: seeded matrices at awkward alignments, float64 references, the tests' norms.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"
#include "src/base/random.hpp"

namespace tandem::testing {

inline constexpr double kUnitF32 = 0x1p-24;  // unit roundoff of float32

// A matrix with its own memory: NaN everywhere outside the elements, so a stray read poisons the result.
class TestMatrix {
 public:
  TestMatrix(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        offset_(offset),
        data_(static_cast<std::size_t>(rows * stride_ + offset + 16),
              std::numeric_limits<float>::quiet_NaN()) {}
  // Uniform in [-1, 1), by name: the same values at any padding and offset.
  TestMatrix& fill(const char* name, float scale = 1.0f) {
    const RandomStream stream(1, name);
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c)
        view().row(r)[c] =
            scale * static_cast<float>(2.0 * stream.unit(static_cast<std::uint64_t>(r * cols_ + c)) - 1.0);
    return *this;
  }
  Matrix view() { return {data_.data() + offset_, rows_, cols_, stride_}; }
  ConstMatrix view() const { return {data_.data() + offset_, rows_, cols_, stride_}; }
  double at(std::int64_t r, std::int64_t c) const { return static_cast<double>(view().row(r)[c]); }
  std::span<const float> flat() const {
    return {data_.data() + offset_, static_cast<std::size_t>(rows_ * stride_)};
  }
  // The elements alone, row by row.
  std::vector<float> elements() const {
    std::vector<float> out;
    for (std::int64_t r = 0; r < rows_; ++r) out.insert(out.end(), view().row(r), view().row(r) + cols_);
    return out;
  }
  // Everything that is no element is still NaN.
  bool guards_intact() const {
    std::size_t numbers = 0;
    for (const float value : data_) numbers += !std::isnan(value);
    return numbers <= static_cast<std::size_t>(rows_ * cols_);
  }

 private:
  std::int64_t rows_, cols_, stride_, offset_;
  std::vector<float> data_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Compares an operation's output with its float64 reference; NaN anywhere fails.
inline void expect_near(const TestMatrix& got, const std::vector<double>& want, double tolerance,
                        const char* what) {
  const std::vector<float> values = got.elements();
  ASSERT_EQ(values.size(), want.size()) << what;
  double worst = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(values[i]) - want[i]);
    if (!(error <= tolerance)) {
      ADD_FAILURE() << what << ": element " << i << " is " << values[i] << ", should be " << want[i]
                    << " within " << tolerance;
      return;
    }
    worst = std::max(worst, error);
  }
  ::testing::Test::RecordProperty(what, std::to_string(worst));
}

// The bit contract: run(threads, padding, offset) gives the same bits for all of them.
template <class Run>
void expect_same_bits_everywhere(const Run& run) {
  const std::vector<float> first = run(1, std::int64_t{0}, std::int64_t{0});
  for (const int threads : {1, 2, 3, 4})
    for (const std::int64_t padding : {0, 1, 7})
      for (const std::int64_t offset : {0, 1, 3})
        ASSERT_TRUE(same_bits(first, run(threads, padding, offset)))
            << threads << " threads, padding " << padding << ", offset " << offset;
}

}  // namespace tandem::testing
