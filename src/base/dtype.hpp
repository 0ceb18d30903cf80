// Number formats of tensors in files and memory.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tandem {

enum class DType { kF32, kBF16, kF16 };

constexpr std::int64_t size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr const char* name_of(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16";
}

// bfloat16 is the upper half of a float32, so widening is exact.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest even; NaN stays NaN.
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16, subnormals included; exact.
inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Round to nearest even, subnormals included; above 65504 + 16 infinite; NaN stays NaN.
inline std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    const float steps = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps));
  }
  return static_cast<std::uint16_t>(sign |
                                    (((magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10)));
}

// The float32 below |value| with its last bit set where it is not the value itself (round to odd): a further
// rounding to a format of at most 22 bits gives what one rounding of the double would have given (Boldo and
// Melquiond 2008).
inline float f64_to_f32_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  float below = nearest;
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) below = std::nextafter(nearest, 0.0f);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(below) | 1u);
}

// One rounding to nearest even.
inline std::uint16_t f64_to_bf16(double value) { return f32_to_bf16(f64_to_f32_odd(value)); }
inline std::uint16_t f64_to_f16(double value) { return f32_to_f16(f64_to_f32_odd(value)); }

}  // namespace tandem
