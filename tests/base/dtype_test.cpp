#include "src/base/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(Dtype, EveryFloat16IsReadAndWrittenBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    else
      EXPECT_EQ(f32_to_f16(value), half) << value;
  }
}

// Between neighbours: the midpoint goes to the even one, anything beside it to the nearer one, for both
// signs.
TEST(Dtype, DoublesAreRoundedOnceToNearestEven) {
  const auto check = [](auto widen, auto narrow, std::uint32_t last) {
    for (std::uint32_t low = 0; low < last; ++low) {
      const double a = static_cast<double>(widen(static_cast<std::uint16_t>(low)));
      const double b = static_cast<double>(widen(static_cast<std::uint16_t>(low + 1)));
      const double middle = (a + b) / 2, tiny = (b - a) * 0x1p-27;  // beyond float32's digits
      for (const double sign : {1.0, -1.0}) {
        const auto bits = [&](std::uint32_t magnitude) {
          return static_cast<std::uint16_t>(magnitude | (sign < 0 ? 0x8000u : 0u));
        };
        ASSERT_EQ(narrow(sign * middle), bits(low % 2 == 0 ? low : low + 1)) << middle;
        ASSERT_EQ(narrow(sign * (middle - tiny)), bits(low)) << middle;
        ASSERT_EQ(narrow(sign * (middle + tiny)), bits(low + 1)) << middle;
      }
    }
  };
  check(f16_to_f32, f64_to_f16, 0x7BFF);
  // bfloat16's subnormals are float32's, so that the middle of two is one too.
  check(bf16_to_f32, f64_to_bf16, 0x7F7F);
}

TEST(Dtype, WhatIsTooLargeBecomesInfinite) {
  EXPECT_EQ(f64_to_f16(65519.99), 0x7BFF);
  EXPECT_EQ(f64_to_f16(65520.0), 0x7C00);
  EXPECT_EQ(f64_to_f16(-1e300), 0xFC00);
  EXPECT_EQ(f64_to_bf16(1e300), 0x7F80);
}

}  // namespace
}  // namespace tandem
