// The instructions of ptx.hpp against what the PTX ISA says of them, on numbers whose products and sums are
// exact.
#include "kernels/cuda/ptx.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

using namespace cuda;

struct Tiles {
  alignas(16) Bf16 a[16 * 16], b[16 * 16], b_transposed[16 * 16];
};

// Two products of a warp: d [16,16] = a b, a [16,16] with rows from n_valid on as zeros, b [16,16];
// b_transposed is b's transpose, and which of the two is read says `transposed`.
TANDEM_KERNEL multiply_kernel(float* d, const Bf16* a, const Bf16* b, const Bf16* b_transposed,
                              std::int64_t n_valid, std::int64_t transposed) {
  auto& tile = block_shared<Tiles>();
  const int row = lane() / 2, at = row * 16 + lane() % 2 * 8;
  cp_async_16(tile.a + at, a + at, row < n_valid);
  cp_async_16(tile.b + at, b + at, true);
  cp_async_16(tile.b_transposed + at, b_transposed + at, true);
  cp_async_commit();
  cp_async_wait<0>();
  warp_barrier();
  std::uint32_t x[4], y[4];
  ldmatrix_x4(x, tile.a + lane() % 16 * 16 + lane() / 16 * 8);
  if (transposed)
    ldmatrix_x4_trans(y, tile.b + lane() % 16 * 16 + lane() / 16 * 8);
  else
    ldmatrix_x4(y, tile.b_transposed + (lane() / 16 * 8 + lane() % 8) * 16 + lane() / 8 % 2 * 8);
  const std::uint32_t right[2] = {y[2], y[3]};
  float sum[2][4] = {{1.0f, 1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}};
  mma_m16n8k16_bf16(sum[0], x, y[0], y[1]);
  mma_m16n8k16_bf16(sum[1], x, right);
  for (int n = 0; n < 2; ++n)
    for (int e = 0; e < 4; ++e)
      d[(lane() / 4 + e / 2 * 8) * 16 + 8 * n + 2 * (lane() % 4) + e % 2] = sum[n][e];
}

TEST(PtxEmulated, ProductsOfLoadedMatricesAreExact) {
  const CudaContext ctx(0);
  std::vector<double> a(256), b(256), b_transposed(256);
  for (std::size_t i = 0; i < 256; ++i) {
    a[i] = static_cast<double>(i * 37 % 101) - 50.0;
    b[i] = static_cast<double>(i * 53 % 97) - 48.0;
    b_transposed[i % 16 * 16 + i / 16] = b[i];
  }
  DeviceMatrix<Bf16> x(ctx, 16, 16), y(ctx, 16, 16), z(ctx, 16, 16);
  x.set(a), y.set(b), z.set(b_transposed);
  for (const emulation::Order order : emulation::kOrders)
    for (const bool transposed : {false, true}) {
      emulation::set_order(order);
      const DeviceMatrix<float> d(ctx, 16, 16);
      launch(ctx, "multiply", multiply_kernel, {1}, 32, sizeof(Tiles), d.view().data, x.cview().data,
             y.cview().data, z.cview().data, std::int64_t{13}, std::int64_t{transposed});
      const std::vector<double> got = d.values();
      for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 16; ++j) {
          double want = 1.0;
          for (std::size_t k = 0; i < 13 && k < 16; ++k) want += a[16 * i + k] * b[16 * k + j];
          ASSERT_EQ(got[16 * i + j], want) << i << ", " << j << (transposed ? " transposed" : "");
        }
    }
  emulation::set_order({});
}

TANDEM_KERNEL copy_words_kernel(float* y, const float* x, std::int64_t n_valid) {
  auto& line = block_shared<float[32]>();
  cp_async_4(&line[lane()], x + lane(), lane() < n_valid);
  cp_async_commit();
  cp_async_wait<0>();
  y[lane()] = line[lane()];
}

TEST(PtxEmulated, CopiesOfWordsAreZeroWhereNotValid) {
  const CudaContext ctx(0);
  const std::vector<float> x(32, 3.0f);
  const DeviceArray<float> from(ctx, x), to(ctx, 32);
  launch(ctx, "copy_words", copy_words_kernel, {1}, 32, sizeof(float[32]), to.data(), from.cspan().data(),
         std::int64_t{29});
  const std::vector<float> y = to.host();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], i < 29 ? 3.0f : 0.0f);
}

TANDEM_KERNEL numbers_kernel(float* power, std::uint32_t* packed, const float* x, std::int64_t n) {
  for (std::int64_t i = global_thread(); i + 1 < n; i += global_thread_count()) {
    power[i] = exp2_approx(x[i]);
    packed[i] = pack_rounded(x[i], x[i + 1]);
  }
}

TEST(PtxEmulated, PowersAreWithinTwoUnitsAndPairsAreRoundedToEven) {
  const CudaContext ctx(0);
  std::vector<float> x = {0.0f,   -std::numeric_limits<float>::infinity(), 1.00390625f, 1.01171875f, -3.0f,
                          3.4e38f};
  for (int i = 0; i < 300; ++i) x.push_back(static_cast<float>(i) * 0.37f - 100.0f);
  const DeviceArray<float> from(ctx, x), power(ctx, static_cast<std::int64_t>(x.size()));
  const DeviceArray<std::uint32_t> packed(ctx, static_cast<std::int64_t>(x.size()));
  launch(ctx, "numbers", numbers_kernel, {2}, 64, 0, power.data(), packed.data(), from.cspan().data(),
         static_cast<std::int64_t>(x.size()));
  const std::vector<float> powers = power.host();
  const std::vector<std::uint32_t> words = packed.host();
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (want < 0x1p127) {
      EXPECT_NEAR(static_cast<double>(powers[i]), want, 4 * 0x1p-24 * want) << x[i];
    }
    EXPECT_EQ(words[i], f32_to_bf16(x[i]) | static_cast<std::uint32_t>(f32_to_bf16(x[i + 1])) << 16) << x[i];
  }
}

}  // namespace
}  // namespace tandem::testing
