#include "kernels/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/checksum.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kChunk = 8192;  // elements a thread takes at a time; the bits do not depend on it
constexpr std::int64_t kBlock = 1024;  // elements checked, then added while they are in the first-level cache
constexpr int kLowBits = 48;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// Calls body(begin, end) for every chunk of [0, size).
template <class Body>
void for_each_chunk(std::int64_t size, int threads, Body&& body) {
  const std::int64_t n_chunks = (size + kChunk - 1) / kChunk;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    body(chunk * kChunk, std::min(size, (chunk + 1) * kChunk));
  }
}

// The integer nearest to x, ties to even, for |x| <= 2^51: adding 1.5 * 2^52 leaves it in the low bits of the
// sum. (Conversion instructions for 64-bit integers exist from AVX-512 on only.)
inline std::int64_t to_integer(double x) {
  constexpr double kShift = 0x1.8p52;
  return std::bit_cast<std::int64_t>(x + kShift) - std::bit_cast<std::int64_t>(kShift);
}

inline void add_one(std::int64_t& high, std::int64_t& low, double value) {
  const double t = value * 0x1p16;
  const double whole = std::trunc(t);
  high += to_integer(whole);
  low += to_integer((t - whole) * 0x1p48);
}

template <class Real>
bool addable(Real value) {
  return std::abs(value) < Real{0x1p32};  // false for NaN
}

// Adds values[0..n), or returns the index of the first that is not addable, having added nothing of it.
std::int64_t add_block(std::int64_t* __restrict high, std::int64_t* __restrict low,
                       const float* __restrict values, std::int64_t n) {
  std::int64_t n_bad = 0;
  for (std::int64_t i = 0; i < n; ++i) n_bad += addable(values[i]) ? 0 : 1;
  if (n_bad != 0) {
    return std::find_if_not(values, values + n, [](float v) { return addable(v); }) - values;
  }
  for (std::int64_t i = 0; i < n; ++i) add_one(high[i], low[i], static_cast<double>(values[i]));
  return kNone;
}

inline double value_of(std::int64_t high, std::int64_t low) {
  return (static_cast<double>(high) * 0x1p48 + static_cast<double>(low)) * 0x1p-64;
}

}  // namespace

void exact_sum_clear(ExactSumView sum, int threads) {
  for_each_chunk(ExactSumView::n_limbs(sum.size), threads, [&](std::int64_t begin, std::int64_t end) {
    std::fill(sum.limbs + begin, sum.limbs + end, 0);
  });
}

std::int64_t exact_sum_add(ExactSumView sum, std::int64_t offset, std::span<const float> values,
                           int threads) {
  const auto size = static_cast<std::int64_t>(values.size());
  const std::int64_t n_chunks = (size + kChunk - 1) / kChunk;
  std::int64_t first_bad = kNone;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : first_bad)
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::int64_t end = std::min(size, (chunk + 1) * kChunk);
    for (std::int64_t at = chunk * kChunk; at < end; at += kBlock) {
      const std::int64_t bad = add_block(sum.high() + offset + at, sum.low() + offset + at,
                                         values.data() + at, std::min(kBlock, end - at));
      if (bad != kNone) first_bad = std::min(first_bad, at + bad);
    }
  }
  return first_bad == kNone ? -1 : first_bad;
}

bool exact_sum_add(ExactSumView sum, std::int64_t index, double value) {
  if (!addable(value)) return false;
  add_one(sum.high()[index], sum.low()[index], value);
  return true;
}

ExactSumCarry exact_sum_carry(ExactSumView sum, int ranks, int threads) {
  const std::uint64_t limit = (std::uint64_t{1} << 62) / static_cast<std::uint64_t>(ranks);
  const std::int64_t n_chunks = (sum.size + kChunk - 1) / kChunk;
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::int64_t too_large = kNone;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : before, after) \
    reduction(min : too_large)
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::int64_t begin = chunk * kChunk;
    const std::int64_t end = std::min(sum.size, begin + kChunk);
    std::int64_t* __restrict high = sum.high();
    std::int64_t* __restrict low = sum.low();
    const auto size = static_cast<std::uint64_t>(sum.size);
    std::uint64_t sum_before = 0;
    std::uint64_t sum_after = 0;
    std::uint64_t n_too_large = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t high_weight = checksum_weight(static_cast<std::uint64_t>(i));
      const std::uint64_t low_weight = checksum_weight(size + static_cast<std::uint64_t>(i));
      // Unsigned: a sum that is already wrong may wrap here, and is reported.
      const auto h = static_cast<std::uint64_t>(high[i]);
      const auto l = static_cast<std::uint64_t>(low[i]);
      const auto carry = static_cast<std::uint64_t>(low[i] >> kLowBits);
      const std::uint64_t new_h = h + carry;
      const std::uint64_t new_l = l - (carry << kLowBits);
      sum_before += high_weight * h + low_weight * l;
      sum_after += high_weight * new_h + low_weight * new_l;
      // -limit < high < limit
      n_too_large += new_h + limit - 1 >= 2 * limit - 1 ? 1 : 0;
      high[i] = static_cast<std::int64_t>(new_h);
      low[i] = static_cast<std::int64_t>(new_l);
    }
    before += sum_before;
    after += sum_after;
    if (n_too_large != 0) {
      const auto fits = [&](std::int64_t h) {
        return static_cast<std::uint64_t>(h) + limit - 1 < 2 * limit - 1;
      };
      too_large = std::min<std::int64_t>(too_large, std::find_if_not(high + begin, high + end, fits) - high);
    }
  }
  return {too_large == kNone ? -1 : too_large, before, after};
}

std::uint64_t exact_sum_checksum(ExactSumView sum, int threads) {
  const std::int64_t n = ExactSumView::n_limbs(sum.size);
  const std::int64_t n_chunks = (n + kChunk - 1) / kChunk;
  std::uint64_t checksum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : checksum)
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::int64_t end = std::min(n, (chunk + 1) * kChunk);
    for (std::int64_t i = chunk * kChunk; i < end; ++i) {
      checksum += checksum_weight(static_cast<std::uint64_t>(i)) * static_cast<std::uint64_t>(sum.limbs[i]);
    }
  }
  return checksum;
}

void exact_sum_mean(ExactSumView sum, std::int64_t offset, double count, std::span<float> means,
                    int threads) {
  for_each_chunk(static_cast<std::int64_t>(means.size()), threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t* __restrict high = sum.high() + offset;
    const std::int64_t* __restrict low = sum.low() + offset;
    float* __restrict out = means.data();
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<float>(value_of(high[i], low[i]) / count);
    }
  });
}

double exact_sum_value(ExactSumView sum, std::int64_t index) {
  return value_of(sum.high()[index], sum.low()[index]);
}

}  // namespace tandem
