// The optimiser, the exact sum, norms and checksums: the CPU's bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/adamw.hpp"
#include "kernels/checksum.hpp"
#include "kernels/exact_sum.hpp"
#include "kernels/norms.hpp"
#include "tests/emulation/kernels/bit_contract.hpp"

namespace tandem {
namespace {

using namespace testing;

std::vector<float> drawn_list(const std::string& name, std::size_t size, double scale) {
  const std::vector<double> values = drawn_values<float>(name, static_cast<std::int64_t>(size), scale);
  return {values.begin(), values.end()};
}

// A list at an offset in its allocation, between elements that nobody may write.
class Guarded {
 public:
  Guarded(const CudaContext& ctx, const std::vector<float>& values, std::size_t offset)
      : offset_(offset), size_(values.size()), list_(ctx, surrounded(values, offset)) {}
  std::span<float> span() { return list_.span().subspan(offset_, size_); }
  std::vector<float> values() {
    const std::vector<float> all = list_.host();
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE((i >= offset_ && i < offset_ + size_) || std::isnan(all[i])) << "written outside, at " << i;
    return {all.begin() + static_cast<std::ptrdiff_t>(offset_),
            all.begin() + static_cast<std::ptrdiff_t>(offset_ + size_)};
  }

 private:
  static std::vector<float> surrounded(const std::vector<float>& values, std::size_t offset) {
    std::vector<float> all(values.size() + offset + 5, std::numeric_limits<float>::quiet_NaN());
    std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
    return all;
  }
  std::size_t offset_, size_;
  DeviceArray<float> list_;
};

TEST(EmulatedAdamw, HasTheBitsOfTheCpu) {
  const CudaContext ctx(0);
  for (const std::size_t size : {0u, 1u, 31u, 33u, 1027u, 5000u})
    for (const std::int64_t step : {1, 2, 1000}) {
      std::vector<float> p = drawn_list("p", size, 0.1), m = drawn_list("m", size, 1e-3),
                         v = drawn_list("v", size, 1e-3), g = drawn_list("g", size, 1e-2);
      for (float& x : v) x *= x;
      if (step == 1) std::fill(m.begin(), m.end(), 0.0f), std::fill(v.begin(), v.end(), 0.0f);
      if (size > 33) g[5] = 0.0f, g[6] = 0x1p-140f, g[7] = 1e18f, v[8] = 0.0f;
      if (size > 33 && step == 2) g[9] = std::numeric_limits<float>::quiet_NaN(), g[10] = HUGE_VALF;
      const AdamwFactors factors = {2e-4, 0.9, 0.999, 1e-8, 0.01, 0.7, step};
      std::vector<float> cpu_p = p, cpu_m = m, cpu_v = v;
      adamw(CpuContext(1), cpu_p, cpu_m, cpu_v, g, factors);
      const std::vector<float> cpu = testing::joined(testing::joined(cpu_p, cpu_m), cpu_v);
      const std::vector<float> device = same_everywhere([&](Place place) {
        const auto offset = static_cast<std::size_t>(place.offset);
        Guarded own_p(ctx, p, offset), own_m(ctx, m, offset), own_v(ctx, v, offset), own_g(ctx, g, offset);
        adamw(ctx, own_p.span(), own_m.span(), own_v.span(), own_g.span(), factors);
        return testing::joined(testing::joined(own_p.values(), own_m.values()), own_v.values());
      });
      ASSERT_EQ(cpu.size(), device.size());
      for (std::size_t i = 0; i < cpu.size(); ++i) {
        if (std::isnan(cpu[i]) && std::isnan(device[i])) continue;  // which NaN is the processor's choice
        ASSERT_EQ(std::bit_cast<std::uint32_t>(cpu[i]), std::bit_cast<std::uint32_t>(device[i]))
            << i << " of " << size << ": " << cpu[i] << ", " << device[i];
      }
    }
}

// Values of every size that a sum may get.
std::vector<float> addends(std::size_t size, std::uint64_t round) {
  std::vector<float> values;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t bits = splitmix64(round << 32 | i);
    const int exponent = static_cast<int>(bits % 180) - 149;
    values.push_back(static_cast<float>(std::ldexp((bits >> 63) != 0 ? -1.0 : 1.0, exponent) *
                                        (1.0 + static_cast<double>(bits >> 12 & 0xFFFFF) * 0x1p-20)));
  }
  if (size > 30)
    values[7] = 0x1.fffffep31f, values[8] = -0x1.fffffep31f, values[9] = 0.0f, values[10] = 0x1p-149f;
  return values;
}

struct Sums {
  std::vector<std::int64_t> cpu;
  DeviceArray<std::int64_t> device;
  DeviceArray<ExactSumReport> report;
  std::int64_t size;

  // Poisoned: clear has its work to do.
  Sums(const CudaContext& ctx, std::int64_t size_)
      : cpu(static_cast<std::size_t>(2 * size_)),
        device(ctx, std::vector<std::int64_t>(cpu.size(), 0x7FF8123456789ABC)),
        report(ctx, {{1, 2, 3, 4}}),
        size(size_) {
    exact_sum_clear(ctx, on_device());
    exact_sum_clear_report(ctx, found());
  }
  ExactSumView on_cpu() { return {cpu.data(), size}; }
  ExactSumView on_device() { return {device.span().data(), size}; }
  ExactSumReport* found() { return report.span().data(); }
};

TEST(EmulatedExactSum, HasTheLimbsChecksumsAndMeansOfTheCpu) {
  const CudaContext ctx(0);
  for (const std::int64_t size : {0, 1, 31, 33, 2048, 5001})
    for (const emulation::Order order : emulation::kOrders) {
      emulation::set_order(order);
      Sums sums(ctx, size);
      for (std::uint64_t round = 0; round < 3; ++round) {
        // In two parts, at an offset.
        const std::vector<float> values = addends(static_cast<std::size_t>(size), round);
        DeviceArray<float> own(ctx, values);
        const std::size_t cut = values.size() / 3;
        exact_sum_add(ctx, sums.on_device(), 0, own.span().first(cut), sums.found());
        exact_sum_add(ctx, sums.on_device(), static_cast<std::int64_t>(cut), own.span().subspan(cut),
                      sums.found());
        ASSERT_EQ(exact_sum_add(sums.on_cpu(), 0, values, 1), -1);
      }
      EXPECT_EQ(sums.cpu, sums.device.host());
      const ExactSumCarry carry = exact_sum_carry(sums.on_cpu(), 4, 1);
      const std::int64_t cut = size / 2;
      exact_sum_carry(ctx, sums.on_device(), 0, cut, 4, sums.found());
      exact_sum_carry(ctx, sums.on_device(), cut, size, 4, sums.found());
      EXPECT_EQ(sums.cpu, sums.device.host());
      const ExactSumReport report = sums.report.host()[0];
      EXPECT_EQ(report.first_bad, ExactSumReport::kNone);
      EXPECT_EQ(report.too_large, ExactSumReport::kNone);
      EXPECT_EQ(report.checksum_before, carry.checksum_before);
      EXPECT_EQ(report.checksum_after, carry.checksum_after);
      const std::int64_t offset = size / 5;
      std::vector<float> means(static_cast<std::size_t>(size - offset));
      exact_sum_mean(sums.on_cpu(), offset, 777.0, means, 1);
      DeviceArray<float> own(ctx, std::vector<float>(means.size() + 1, -1.0f));
      exact_sum_mean(ctx, sums.on_device(), offset, 777.0, own.span().first(means.size()));
      means.push_back(-1.0f);
      EXPECT_TRUE(same_bytes(means, own.host()));
    }
  emulation::set_order({});
}

TEST(EmulatedExactSum, ReportsTheSmallestIndexThatCannotBeAdded) {
  const CudaContext ctx(0);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {inf, -inf, nan, 0x1p32f, -0x1p32f})
    for (const emulation::Order order : emulation::kOrders) {
      emulation::set_order(order);
      Sums sums(ctx, 1000);
      std::vector<float> values(900, 1.0f);
      values[850] = nan, values[333] = bad, values[700] = inf;
      DeviceArray<float> own(ctx, values);
      exact_sum_add(ctx, sums.on_device(), 50, own.span(), sums.found());
      EXPECT_EQ(sums.report.host()[0].first_bad, 383);
      // Not added; its neighbours are.
      const std::vector<std::int64_t> limbs = sums.device.host();
      EXPECT_EQ(limbs[383], 0);
      EXPECT_EQ(limbs[384], std::int64_t{1} << 16);
      // A later addend does not hide it.
      DeviceArray<float> later(ctx, std::vector<float>{nan});
      exact_sum_add(ctx, sums.on_device(), 999, later.span(), sums.found());
      EXPECT_EQ(sums.report.host()[0].first_bad, 383);
      exact_sum_clear_report(ctx, sums.found());
      EXPECT_EQ(sums.report.host()[0].first_bad, ExactSumReport::kNone);
    }
  emulation::set_order({});
}

TEST(EmulatedExactSum, ReportsTheSmallestElementThatIsTooLarge) {
  const CudaContext ctx(0);
  for (const int ranks : {1, 3, 16384}) {
    Sums sums(ctx, 5000);
    const std::int64_t limit = (std::int64_t{1} << 62) / ranks;
    std::vector<std::int64_t> limbs(10000, 0);
    limbs[10] = limit - 1, limbs[11] = 1 - limit;                         // the largest that fit
    limbs[4100] = limit - 1, limbs[5000 + 4100] = std::int64_t{1} << 48;  // too large by what is carried
    limbs[4900] = -limit;
    copy_to_device<std::int64_t>(ctx, sums.device.span(), limbs);
    sums.cpu = limbs;
    EXPECT_EQ(exact_sum_carry(sums.on_cpu(), ranks, 1).too_large, 4100);
    exact_sum_carry(ctx, sums.on_device(), 0, 5000, ranks, sums.found());
    EXPECT_EQ(sums.report.host()[0].too_large, 4100);
    EXPECT_EQ(sums.cpu, sums.device.host());
  }
}

// Tensors of awkward sizes, one behind the other with gaps, named in another order than they lie.
struct Tensors {
  std::vector<float> x, y;
  std::vector<TensorPiece> pieces;

  Tensors() {
    std::int64_t offset = 3, first = 0;
    for (const std::int64_t size : {1, 31, 33, 2500, 0, 16, 9000}) {
      pieces.push_back({offset, size, 0});
      offset += size + 5;
    }
    std::reverse(pieces.begin(), pieces.end());
    for (TensorPiece& piece : pieces) piece.first = std::exchange(first, first + piece.size);
    x = drawn_list("x", static_cast<std::size_t>(offset), 2.0);
    y = drawn_list("y", static_cast<std::size_t>(offset), 2.0);
    std::vector<bool> inside(x.size(), false);
    for (const TensorPiece& piece : pieces)
      for (std::int64_t i = 0; i < piece.size; ++i) inside[static_cast<std::size_t>(piece.offset + i)] = true;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!inside[i]) x[i] = y[i] = std::numeric_limits<float>::quiet_NaN();
  }
};

TEST(EmulatedTensorNorms, MatchLongerPrecision) {
  CudaContext ctx(0);
  const Tensors t;
  ctx.reserve(tensor_sums_scratch_bytes(std::ssize(t.pieces)));
  DeviceArray<TensorPiece> pieces(ctx, t.pieces);
  for (const bool difference : {false, true}) {
    const std::vector<double> sums = same_everywhere([&](Place place) {
      const auto offset = static_cast<std::size_t>(place.offset);
      Guarded x(ctx, t.x, offset), y(ctx, t.y, offset);
      std::vector<double> result(t.pieces.size(), -1.0);
      if (difference)
        tensor_difference_squares(ctx, result, x.span(), y.span(), pieces.span());
      else
        tensor_squares(ctx, result, x.span(), pieces.span());
      return result;
    });
    for (std::size_t p = 0; p < t.pieces.size(); ++p) {
      long double want = 0;
      for (std::int64_t i = 0; i < t.pieces[p].size; ++i) {
        const auto at = static_cast<std::size_t>(t.pieces[p].offset + i);
        const long double d = static_cast<long double>(t.x[at]) - (difference ? t.y[at] : 0.0f);
        want += d * d;
      }
      // The difference twice, its square, a block's additions; all terms are positive.
      const double bound = (3 + additions(t.pieces[p].size, 512)) * 0x1p-53;
      EXPECT_LE(std::abs(static_cast<double>(static_cast<long double>(sums[p]) - want)),
                bound * static_cast<double>(want))
          << p;
    }
  }
  tensor_squares(ctx, {}, {}, {});
}

TEST(EmulatedChecksum, IsTheCpus) {
  CudaContext ctx(0);
  ctx.reserve(256);
  const Tensors t;
  DeviceArray<TensorPiece> pieces(ctx, t.pieces);
  std::vector<std::span<const float>> tensors;
  for (const TensorPiece& piece : t.pieces)
    tensors.push_back(std::span<const float>(t.x).subspan(static_cast<std::size_t>(piece.offset),
                                                          static_cast<std::size_t>(piece.size)));
  const std::uint64_t want = adapter_checksum(tensors, 1);
  const std::vector<std::uint64_t> got = same_everywhere([&](Place place) {
    Guarded x(ctx, t.x, static_cast<std::size_t>(place.offset));
    return std::vector<std::uint64_t>{adapter_checksum(ctx, x.span(), pieces.span())};
  });
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(adapter_checksum(ctx, {}, {}), 0u);
}

}  // namespace
}  // namespace tandem
