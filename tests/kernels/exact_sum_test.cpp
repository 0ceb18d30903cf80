#include "kernels/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/checksum.hpp"
#include "src/base/random.hpp"

namespace tandem {
namespace {

using Int128 = __int128;

struct Sum {
  explicit Sum(std::int64_t size)
      : limbs(static_cast<std::size_t>(ExactSumView::n_limbs(size))), size_(size) {
    // Poisoned: clear has to do its work.
    std::fill(limbs.begin(), limbs.end(), 0x7FF8123456789ABC);
    exact_sum_clear(view(), 1);
  }
  ExactSumView view() { return {limbs.data(), size_}; }
  Int128 exact(std::int64_t i) {
    return static_cast<Int128>(view().high()[i]) * (Int128{1} << 48) + view().low()[i];
  }
  std::vector<std::int64_t> limbs;

 private:
  std::int64_t size_;
};

// The reference shares no step with the code: the value's own significand and exponent, shifted to units of
// 2^-64 in 128-bit integers, ties to even.
Int128 units_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const auto significand =
      static_cast<std::int64_t>(std::ldexp(fraction, 53));  // value = significand * 2^(exponent-53)
  const int shift = exponent - 53 + 64;
  const bool negative = significand < 0;
  const auto magnitude = static_cast<unsigned __int128>(negative ? -significand : significand);
  unsigned __int128 units = 0;
  if (shift >= 0) {
    units = magnitude << shift;
  } else if (shift > -60) {
    units = magnitude >> -shift;
    const unsigned __int128 rest = magnitude - (units << -shift);
    const unsigned __int128 half = static_cast<unsigned __int128>(1) << (-shift - 1);
    if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  }
  return negative ? -static_cast<Int128>(units) : static_cast<Int128>(units);
}

// The double nearest to units * 2^-64, ties to even.
double rounded(Int128 units) {
  const bool negative = units < 0;
  auto magnitude = static_cast<unsigned __int128>(negative ? -units : units);
  int shift = 0;
  unsigned sticky = 0;
  while ((magnitude >> 55) != 0) {
    sticky |= static_cast<unsigned>(magnitude & 1);
    magnitude >>= 1;
    ++shift;
  }
  // At most 55 bits are left: two of them below the last place where anything was cut.
  auto bits = static_cast<std::uint64_t>(magnitude);
  if (shift > 0) {
    const std::uint64_t rest = (bits & 3) << 1 | sticky;
    bits >>= 2;
    shift += 2;
    if (rest > 4 || (rest == 4 && (bits & 1) != 0)) ++bits;
  }
  // Where nothing was cut the 55 bits may still be more than 53; the conversion below rounds them, ties to
  // even.
  const double value = std::ldexp(static_cast<double>(bits), shift - 64);
  return negative ? -value : value;
}

// Floats of every exponent that can be added, subnormals and zeros of both signs included.
std::vector<float> any_floats(std::size_t n, std::uint64_t seed) {
  const RandomStream random(seed, "any");
  std::vector<float> values;
  for (std::uint64_t i = 0; values.size() < n; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random.draw(i)));
    if (std::abs(value) < 0x1p32f) values.push_back(value);
  }
  return values;
}

// Floats around 2^-40 .. 2^4, as gradients are, of both signs.
std::vector<float> gradient_floats(std::size_t n, std::uint64_t seed) {
  const RandomStream random(seed, "gradient");
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const int exponent = -static_cast<int>(random.draw(2 * i) % 45) + 4;
    values[i] = static_cast<float>(std::ldexp(2 * random.unit(2 * i + 1) - 1, exponent));
  }
  return values;
}

constexpr float kLargest = 0x1.fffffep31f;

TEST(ExactSum, OneAddendRoundsOnceToTheUnit) {
  constexpr std::size_t kN = 2'000'003;
  for (const auto& values : {any_floats(kN, 1), gradient_floats(kN, 2)}) {
    Sum sum(kN);
    ASSERT_EQ(exact_sum_add(sum.view(), 0, values, 2), -1);
    for (std::size_t i = 0; i < kN; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      ASSERT_TRUE(sum.exact(at) == units_of(values[i])) << std::hexfloat << values[i];
      ASSERT_LE(std::abs(sum.view().low()[at]), std::int64_t{1} << 48) << std::hexfloat << values[i];
    }
  }
}

TEST(ExactSum, ExtremeFloatsRoundOnceToTheUnit) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               kLargest,
                               0x1p-149f,
                               0x1p-65f,
                               0x1.8p-64f,
                               0x1.8p-65f,
                               0x1.000002p-65f,
                               0x1p-64f,
                               0x1p-40f,
                               0x1.fffffep-41f,
                               0x1p-16f,
                               0x1.fffffep-17f,
                               1.0f,
                               0x1.fffffep-1f,
                               std::numeric_limits<float>::min(),
                               0x1.4p-62f,
                               0x1.cp-63f};
  for (const float value : std::vector<float>(values)) values.push_back(-value);
  Sum sum(static_cast<std::int64_t>(values.size()));
  ASSERT_EQ(exact_sum_add(sum.view(), 0, values, 1), -1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(sum.exact(static_cast<std::int64_t>(i)) == units_of(values[i])) << std::hexfloat << values[i];
  }
}

TEST(ExactSum, OneDoubleRoundsOnceToTheUnit) {
  const RandomStream random(3, "doubles");
  Sum sum(1);
  std::vector<double> values = {0x1.fffffffffffffp31, 0x1p-1074, 0x1.0000000000001p-65, 0x1.8p-64, 1.0 / 3,
                                0x1p31 + 0x1p-21};
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const int exponent = -static_cast<int>(random.draw(2 * i) % 120) + 32;
    values.push_back(std::ldexp(2 * random.unit(2 * i + 1) - 1, exponent));
  }
  for (const double value : values) {
    exact_sum_clear(sum.view(), 1);
    ASSERT_TRUE(exact_sum_add(sum.view(), 0, value));
    ASSERT_TRUE(sum.exact(0) == units_of(value)) << std::hexfloat << value;
  }
}

TEST(ExactSum, SumsAndTheirMeansAreCorrectlyRounded) {
  constexpr std::int64_t kN = 100'000;
  constexpr int kAddends = 24;
  Sum sum(kN);
  std::vector<Int128> expected(kN);
  std::vector<float> previous(kN);
  for (int a = 0; a < kAddends; ++a) {
    auto values = a % 3 == 1 ? any_floats(kN, 100 + static_cast<std::uint64_t>(a))
                             : gradient_floats(kN, 100 + static_cast<std::uint64_t>(a));
    if (a % 3 == 2) {  // takes most of the last addend away again
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = -std::nextafter(previous[i], 0.0f);
    }
    previous = values;
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] += units_of(values[i]);
    ASSERT_EQ(exact_sum_add(sum.view(), 0, values, 2), -1);
    if (a == 11) {
      ASSERT_EQ(exact_sum_carry(sum.view(), 1, 2).too_large, -1);
    }
  }
  ASSERT_EQ(exact_sum_carry(sum.view(), 1, 2).too_large, -1);
  std::vector<float> means(kN, std::numeric_limits<float>::quiet_NaN());
  exact_sum_mean(sum.view(), 0, 7, means, 2);
  for (std::size_t i = 0; i < kN; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    ASSERT_TRUE(sum.exact(at) == expected[i]) << i;
    const double value = rounded(expected[i]);
    ASSERT_EQ(exact_sum_value(sum.view(), at), value) << i;
    ASSERT_EQ(means[i], static_cast<float>(value / 7)) << i;
  }
}

// Sums of every size below 2^37, given as limbs: more than addends could reach in a test's time.
TEST(ExactSum, ValuesBelowTwoToThe37AreCorrectlyRounded) {
  constexpr std::int64_t kN = 1'000'000;
  const RandomStream random(5, "limbs");
  Sum sum(kN);
  for (std::int64_t i = 0; i < kN; ++i) {
    const auto at = static_cast<std::uint64_t>(3 * i);
    const auto high = static_cast<std::int64_t>(random.draw(at)) >> (11 + random.draw(at + 1) % 52);
    sum.view().high()[i] = high;
    // Every second low limb lies near a tie: a bit pattern of few bits.
    const std::uint64_t low = random.draw(at + 2) >> 16;
    sum.view().low()[i] =
        static_cast<std::int64_t>(i % 2 == 0 ? low : std::bit_floor(low) + (random.draw(at + 2) & 1));
  }
  for (std::int64_t i = 0; i < kN; ++i) ASSERT_EQ(exact_sum_value(sum.view(), i), rounded(sum.exact(i))) << i;
}

// Sums that are an exact multiple of a number halfway between two floats: multiplying by 1/count instead
// would leave the tie, and round about half of them to the wrong side.
TEST(ExactSum, MeansAreDividedOnceAndTiesGoToEven) {
  constexpr std::int64_t kN = 1000;
  for (const std::int64_t count : {3, 7, 49, 103, 1021, 4095}) {
    Sum sum(kN);
    std::vector<float> expected, means(kN);
    for (std::int64_t i = 0; i < kN; ++i) {
      const std::int64_t halfway = (std::int64_t{1} << 25) - 2 * i - 1;  // floats here are 2 apart
      sum.view().high()[i] = (count * halfway) << 16;
      expected.push_back(static_cast<float>(halfway + (i % 2 == 0 ? 1 : -1)));
    }
    exact_sum_mean(sum.view(), 0, static_cast<double>(count), means, 1);
    EXPECT_EQ(means, expected) << count;
  }
}

TEST(ExactSum, WorstCaseAddendsStayExactBetweenCarries) {
  // low is largest just below a multiple of 2^-16, high just below 2^32.
  const double worst[] = {0x1.fffffep-17,      -0x1.fffffep-17, 0x1p31 - 0x1p-21,
                          -(0x1p31 - 0x1p-21), 0x1.8p-65,       0x1p31 - 0x1p-16};
  constexpr std::int64_t kN = std::size(worst);
  constexpr int kAddends = 32'767;
  Sum sum(kN);
  AddendCounter counter;
  for (int a = 0; a < kAddends; ++a) {
    if (counter.full()) {
      EXPECT_EQ(a % kMaxAddends, 0);
      ASSERT_EQ(exact_sum_carry(sum.view(), 1, 1).too_large, -1);
      counter.carried();
    }
    counter.add();
    for (std::int64_t i = 0; i < kN; ++i) ASSERT_TRUE(exact_sum_add(sum.view(), i, worst[i]));
  }
  ASSERT_EQ(exact_sum_carry(sum.view(), 1, 1).too_large, -1);
  for (std::int64_t i = 0; i < kN; ++i) EXPECT_TRUE(sum.exact(i) == units_of(worst[i]) * kAddends) << i;
}

// The largest addends there are, as many as between two carries: no limb overflows (the sanitizers see this
// test).
TEST(ExactSum, TheLargestAddendsFitBetweenCarriesOfOneRankAndAreRefusedForTwo) {
  const double largest = 0x1.fffffffffffffp31;
  Sum sum(2);
  for (std::int64_t a = 0; a < kMaxAddends; ++a) {
    ASSERT_TRUE(exact_sum_add(sum.view(), 0, -largest));
    ASSERT_TRUE(exact_sum_add(sum.view(), 1, 0x1p31));
  }
  EXPECT_TRUE(sum.exact(0) == -units_of(largest) * kMaxAddends);
  EXPECT_EQ(exact_sum_carry(sum.view(), 1, 1).too_large, -1);
  EXPECT_EQ(exact_sum_carry(sum.view(), 2, 1).too_large, 0);
  EXPECT_TRUE(sum.exact(0) == -units_of(largest) * kMaxAddends);
  EXPECT_TRUE(sum.exact(1) == units_of(0x1p31) * kMaxAddends);
}

TEST(ExactSum, BitsDependNeitherOnOrderNorOnThreadsNorOnPieces) {
  constexpr std::int64_t kN = 3 * 8192 + 17;
  std::vector<std::vector<float>> addends;
  for (std::uint64_t a = 0; a < 9; ++a) addends.push_back(gradient_floats(kN, 40 + a));
  Sum expected(kN);
  for (const auto& values : addends) ASSERT_EQ(exact_sum_add(expected.view(), 0, values, 1), -1);
  const ExactSumCarry carry = exact_sum_carry(expected.view(), 1, 1);
  std::vector<float> means(kN);
  exact_sum_mean(expected.view(), 0, 321, means, 1);

  for (const int threads : {1, 2, 3, 5}) {
    std::vector<std::size_t> order(addends.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + threads, order.end());
    std::reverse(order.begin() + 1, order.end());
    Sum sum(kN);
    for (const std::size_t a : order) {
      const std::span<const float> all(addends[a]);
      const std::size_t cut = 1 + 1000 * static_cast<std::size_t>(threads);
      ASSERT_EQ(exact_sum_add(sum.view(), static_cast<std::int64_t>(cut), all.subspan(cut), threads), -1);
      ASSERT_EQ(exact_sum_add(sum.view(), 0, all.first(cut), threads), -1);
      if (a == 4) (void)exact_sum_carry(sum.view(), 3, threads);
    }
    EXPECT_EQ(exact_sum_carry(sum.view(), 1, threads).checksum_after, carry.checksum_after);
    EXPECT_EQ(sum.limbs, expected.limbs);
    std::vector<float> other(kN, std::numeric_limits<float>::quiet_NaN());
    exact_sum_mean(sum.view(), 0, 321, other, threads);
    EXPECT_EQ(other, means);
    exact_sum_mean(sum.view(), 777, 321, std::span(other).subspan(0, 999), threads);
    EXPECT_TRUE(std::equal(other.begin(), other.begin() + 999, means.begin() + 777));
  }
}

TEST(ExactSum, SizesAroundVectorsAndChunksTouchNothingElse) {
  for (const std::int64_t n : {0, 1, 7, 8, 9, 31, 33, 1023, 1025, 8191, 8192, 8193, 20'000}) {
    Sum sum(n + 2);
    const auto values = gradient_floats(static_cast<std::size_t>(n), 60);
    ASSERT_EQ(exact_sum_add(sum.view(), 1, values, 2), -1);
    EXPECT_TRUE(sum.exact(0) == 0 && sum.exact(n + 1) == 0) << n;
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(sum.exact(i + 1) == units_of(values[static_cast<std::size_t>(i)])) << n << " " << i;
    }
    (void)exact_sum_carry(sum.view(), 1, 2);
    std::vector<float> means(static_cast<std::size_t>(n) + 1, -1.0f);
    exact_sum_mean(sum.view(), 1, 1, std::span(means).first(static_cast<std::size_t>(n)), 2);
    EXPECT_EQ(means.back(), -1.0f) << n;
  }
}

TEST(ExactSum, ValuesThatCannotBeAddedAreFoundWithTheirPlace) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), -std::nanf(""), infinity, -infinity, 0x1p32f, -0x1p32f,
                          std::numeric_limits<float>::max()}) {
    for (const std::size_t at : {0ul, 5ul, 1023ul, 1024ul, 8192ul, 39'999ul}) {
      std::vector<float> values = gradient_floats(40'000, 70);
      values[at] = bad;
      values[39'999] = bad;
      Sum sum(40'000);
      EXPECT_EQ(exact_sum_add(sum.view(), 0, values, 3), static_cast<std::int64_t>(at)) << bad;
    }
  }
  Sum sum(2);
  EXPECT_EQ(exact_sum_add(sum.view(), 0, std::vector<float>{kLargest, -kLargest}, 1), -1);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0x1p32, -0x1p32}) {
    EXPECT_FALSE(exact_sum_add(sum.view(), 0, bad));
  }
  EXPECT_TRUE(sum.exact(0) == units_of(kLargest)) << "a refused double changed the sum";
}

TEST(ExactSum, CarryKeepsTheValueAndGivesTheNormalForm) {
  constexpr std::int64_t kN = 50'000;
  const RandomStream random(6, "carry");
  Sum sum(kN);
  std::vector<Int128> values;
  for (std::int64_t i = 0; i < kN; ++i) {
    sum.view().high()[i] = static_cast<std::int64_t>(random.draw(static_cast<std::uint64_t>(2 * i))) >> 5;
    sum.view().low()[i] = static_cast<std::int64_t>(random.draw(static_cast<std::uint64_t>(2 * i + 1))) >> 1;
    values.push_back(sum.exact(i));
  }
  EXPECT_EQ(exact_sum_carry(sum.view(), 1, 2).too_large, -1);
  for (std::int64_t i = 0; i < kN; ++i) {
    ASSERT_TRUE(sum.exact(i) == values[static_cast<std::size_t>(i)]);
    ASSERT_GE(sum.view().low()[i], 0);
    ASSERT_LT(sum.view().low()[i], std::int64_t{1} << 48);
  }
}

TEST(ExactSum, CarryNamesTheFirstElementTooLargeForTheRanks) {
  for (const int ranks : {1, 2, 3, 7, kMaxRanks}) {
    const std::int64_t limit = (std::int64_t{1} << 62) / ranks;
    for (const std::int64_t sign : {1, -1}) {
      Sum sum(20'000);
      sum.view().high()[3] = sign * (limit - 1);
      EXPECT_EQ(exact_sum_carry(sum.view(), ranks, 2).too_large, -1) << ranks;
      sum.view().high()[9'000] = sign * limit;
      sum.view().high()[19'999] = sign * limit;
      EXPECT_EQ(exact_sum_carry(sum.view(), ranks, 2).too_large, 9'000) << ranks;
      sum.view().high()[8] = limit - 1;  // reaches the limit by its carry
      sum.view().low()[8] = std::int64_t{1} << 48;
      EXPECT_EQ(exact_sum_carry(sum.view(), ranks, 2).too_large, 8) << ranks;
    }
  }
}

TEST(ExactSum, ChecksumFollowsItsFormula) {
  constexpr std::int64_t kN = 8192 + 5;
  Sum sum(kN);
  for (std::uint64_t a = 0; a < 3; ++a) {
    ASSERT_EQ(exact_sum_add(sum.view(), 0, gradient_floats(kN, 80 + a), 1), -1);
  }
  const auto by_formula = [&] {
    std::uint64_t checksum = 0;
    for (std::size_t i = 0; i < sum.limbs.size(); ++i) {
      checksum += (splitmix64(i) | 1) * static_cast<std::uint64_t>(sum.limbs[i]);
    }
    return checksum;
  };
  const std::uint64_t before = by_formula();
  EXPECT_EQ(exact_sum_checksum(sum.view(), 1), before);
  EXPECT_EQ(exact_sum_checksum(sum.view(), 3), before);
  const ExactSumCarry carry = exact_sum_carry(sum.view(), 1, 3);
  EXPECT_EQ(carry.checksum_before, before);
  EXPECT_EQ(carry.checksum_after, by_formula());
}

TEST(ExactSum, ChecksumsOfRanksAddUpToTheChecksumOfTheirSum) {
  constexpr std::int64_t kN = 1000;
  std::uint64_t expected = 0;
  Sum total(kN);
  for (std::uint64_t rank = 0; rank < 5; ++rank) {
    Sum sum(kN);
    ASSERT_EQ(exact_sum_add(sum.view(), 0, gradient_floats(kN, 90 + rank), 1), -1);
    expected += exact_sum_carry(sum.view(), 5, 1).checksum_after;
    for (std::size_t i = 0; i < total.limbs.size(); ++i) total.limbs[i] += sum.limbs[i];
  }
  EXPECT_EQ(exact_sum_carry(total.view(), 1, 1).checksum_before, expected);
}

TEST(ExactSum, AnyFlippedLostOrDoubledLimbChangesTheChecksum) {
  constexpr std::int64_t kN = 257;
  Sum sum(kN);
  ASSERT_EQ(exact_sum_add(sum.view(), 0, gradient_floats(kN, 95), 1), -1);
  const std::uint64_t right = exact_sum_checksum(sum.view(), 1);
  for (std::int64_t& limb : sum.limbs) {
    const std::int64_t kept = limb;
    for (int bit = 0; bit < 64; ++bit) {
      limb = kept ^ static_cast<std::int64_t>(std::uint64_t{1} << bit);
      ASSERT_NE(exact_sum_checksum(sum.view(), 1), right);
    }
    if (kept != 0) {
      limb = 0;
      ASSERT_NE(exact_sum_checksum(sum.view(), 1), right);
      limb = 2 * kept;
      ASSERT_NE(exact_sum_checksum(sum.view(), 1), right);
    }
    limb = kept;
  }
  std::swap(sum.limbs[3], sum.limbs[4]);
  EXPECT_NE(exact_sum_checksum(sum.view(), 1), right);
}

TEST(AdapterChecksum, RunsOnOverTheTensorsByItsFormula) {
  const std::vector<float> a = gradient_floats(8192 + 3, 1), b, c = gradient_floats(31, 2);
  std::uint64_t expected = 0, i = 0;
  for (const auto* tensor : {&a, &b, &c}) {
    for (const float value : *tensor) expected += (splitmix64(i++) | 1) * std::bit_cast<std::uint32_t>(value);
  }
  const std::vector<std::span<const float>> tensors = {a, b, c};
  for (const int threads : {1, 2, 4}) EXPECT_EQ(adapter_checksum(tensors, threads), expected);
}

TEST(AdapterChecksum, SeesTheSignOfZeroAndTheOrder) {
  const std::vector<float> zero = {0.0f}, minus_zero = {-0.0f}, one = {1.0f};
  const auto of = [](std::vector<std::span<const float>> tensors) { return adapter_checksum(tensors, 1); };
  EXPECT_EQ(of({}), 0u);
  EXPECT_NE(of({zero}), of({minus_zero}));
  EXPECT_NE(of({zero, one}), of({one, zero}));
}

}  // namespace
}  // namespace tandem
