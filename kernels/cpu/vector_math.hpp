// Elementary functions that the compiler can vectorise: no branches, no tables, no library calls.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::cpu {

// exp(x), relative error below 2^-23, two units of rounding (tested over the range); 0 below about -87.3 (no
// subnormals), inf above 88.7, NaN for NaN. Cody-Waite reduction by ln 2 in two parts, then the Taylor
// polynomial of degree 7 on [-ln2/2, ln2/2]: its remainder is below (ln2/2)^8/8! = 5.2e-9, a tenth of a unit.
inline float exp_f32(float x) {
  const float clamped = x < -87.33654f ? -87.33654f : (x > 88.72283f ? 88.72283f : x);
  // Adding 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors: n = 128 (just below the overflow threshold) has no float of its own.
  const auto k = static_cast<std::int32_t>(n);
  const std::int32_t half = k >> 1;
  const float s1 = std::bit_cast<float>((half + 127) << 23);
  const float s2 = std::bit_cast<float>((k - half + 127) << 23);
  float y = p * s1 * s2;
  y = x < -87.33654f ? 0.0f : y;
  y = x > 88.72283f ? std::bit_cast<float>(0x7F800000) : y;
  return x != x ? x : y;
}

}  // namespace tandem::cpu
