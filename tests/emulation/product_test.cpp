#include "kernels/product.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/base/text.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/product_reference.hpp"

namespace tandem::testing {
namespace {

struct Case {
  std::int64_t m, n, k;
  Op op_a, op_b;
};
constexpr Case kCases[] = {
    {1, 1, 1, Op::kPlain, Op::kPlain},          {31, 33, 17, Op::kPlain, Op::kTransposed},
    {33, 31, 129, Op::kPlain, Op::kPlain},      {16, 70, 65, Op::kTransposed, Op::kPlain},
    {65, 16, 300, Op::kTransposed, Op::kPlain}, {1, 130, 300, Op::kTransposed, Op::kTransposed},
    {130, 1, 31, Op::kPlain, Op::kTransposed},  {0, 5, 3, Op::kPlain, Op::kPlain},
    {5, 0, 3, Op::kPlain, Op::kPlain},          {3, 4, 0, Op::kPlain, Op::kPlain},
    {64, 96, 128, Op::kPlain, Op::kTransposed},
};

template <class In, class Out>
void check_cases(ProductMode mode, double input_unit) {
  const CudaContext ctx(0, mode);
  for (const Case& c : kCases)
    for (const auto& [padding, offset] : {std::pair{0, 0}, {3, 1}, {8, 4}}) {
      SCOPED_TRACE(cat(c.m, " x ", c.n, " x ", c.k, ", padding ", padding, ", offset ", offset));
      const bool plain_a = c.op_a == Op::kPlain, plain_b = c.op_b == Op::kPlain;
      DeviceMatrix<In> a(ctx, plain_a ? c.m : c.k, plain_a ? c.k : c.m, padding, offset);
      DeviceMatrix<In> b(ctx, plain_b ? c.k : c.n, plain_b ? c.n : c.k, padding, offset);
      DeviceMatrix<Out> out(ctx, c.m, c.n, padding, offset);
      a.fill("a"), b.fill("b");
      Reference want(c.m, c.n);
      want.add(a, c.op_a, b, c.op_b, 0.5);
      const ProductTermOf<In> term{a.cview(), c.op_a, b.cview(), c.op_b, 0.5f};
      product(ctx, out.view(), MatrixView<const Out>(), std::span(&term, 1));
      const bool tensor_cores = std::is_same_v<In, Bf16> || mode == ProductMode::kTf32;
      expect_near(out, want, input_unit, tensor_cores ? 2.0 * kUnitF32 : kUnitF32);
      const std::vector<Out> first = out.elements();
      product(ctx, out.view(), MatrixView<const Out>(), std::span(&term, 1));
      EXPECT_TRUE(same_bytes(out.elements(), first)) << "the same call has the same bits";
    }
}

TEST(ProductEmulated, Float32MatchesFloat64) { check_cases<float, float>(ProductMode::kF32, 0.0); }
TEST(ProductEmulated, Tf32MatchesFloat64) { check_cases<float, float>(ProductMode::kTf32, kUnitTf32); }
TEST(ProductEmulated, Bf16IntoFloat32MatchesFloat64) { check_cases<Bf16, float>(ProductMode::kF32, 0.0); }
TEST(ProductEmulated, Bf16IntoBf16MatchesFloat64) { check_cases<Bf16, Bf16>(ProductMode::kTf32, 0.0); }

TEST(ProductEmulated, Tf32IsComputedWhereItIsAskedForAndNowhereElse) {
  std::vector<float> results[2];
  for (const ProductMode mode : {ProductMode::kF32, ProductMode::kTf32}) {
    const CudaContext ctx(0, mode);
    // Rows of whole 16 bytes: of others, a device may have no tensor core's algorithm.
    DeviceMatrix<float> a(ctx, 64, 64), b(ctx, 64, 64), c(ctx, 64, 64);
    a.fill("a"), b.fill("b");
    const ProductTerm term{a.cview(), Op::kPlain, b.cview(), Op::kPlain};
    product(ctx, c.view(), ConstMatrix(), std::span(&term, 1));
    results[mode == ProductMode::kTf32] = c.elements();
  }
  double largest = 0.0;
  for (std::size_t i = 0; i < results[0].size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(results[0][i]) - results[1][i]));
  EXPECT_GT(largest, 40 * kUnitF32);
}

// Two adapters' ranges, one nested in the first term's, and columns that have the base alone.
template <class In, class Out>
void check_ranges(bool in_place, bool first_covers_all) {
  const CudaContext ctx(0);
  DeviceMatrix<In> x(ctx, 35, 40, 2), w(ctx, 150, 40), u(ctx, 35, 8), b(ctx, 50, 8), v(ctx, 8, 20);
  DeviceMatrix<Out> base(ctx, 35, 150, 5), c(ctx, 35, 150, 3, 1);
  x.fill("x"), w.fill("w"), u.fill("u"), b.fill("b"), v.fill("v"), base.fill("base");
  if (in_place) c.fill("base");
  Reference want(35, 150);
  want.start(base);
  std::vector<ProductTermOf<In>> terms;
  if (first_covers_all) {
    want.add(x, Op::kPlain, w, Op::kTransposed);
    terms.push_back({x.cview(), Op::kPlain, w.cview(), Op::kTransposed});
  }
  want.add(u, Op::kPlain, b, Op::kTransposed, 2.0, 45);
  terms.push_back({u.cview(), Op::kPlain, b.cview(), Op::kTransposed, 2.0f, 45, 95});
  want.add(u, Op::kPlain, v, Op::kPlain, -0.5, 130);
  terms.push_back({u.cview(), Op::kPlain, v.cview(), Op::kPlain, -0.5f, 130});
  product(ctx, c.view(), in_place ? c.cview() : base.cview(), std::span<const ProductTermOf<In>>(terms));
  expect_near(c, want);
  EXPECT_TRUE(base.padding_intact());
}

TEST(ProductEmulated, AddsItsTermsInColumnRangesToABaseApartOrInPlace) {
  for (const bool in_place : {false, true})
    for (const bool first_covers_all : {false, true}) {
      check_ranges<float, float>(in_place, first_covers_all);
      check_ranges<Bf16, float>(in_place, first_covers_all);
      check_ranges<Bf16, Bf16>(in_place, first_covers_all);
    }
}

TEST(ProductEmulated, WithoutABaseTheFirstTermOfEachRangeOverwrites) {
  const CudaContext ctx(0);
  DeviceMatrix<float> x(ctx, 9, 12), q(ctx, 10, 12), k(ctx, 6, 12), u(ctx, 9, 4), b(ctx, 6, 4),
      c(ctx, 9, 16, 1);
  x.fill("x"), q.fill("q"), k.fill("k"), u.fill("u"), b.fill("b");
  Reference want(9, 16);
  want.add(x, Op::kPlain, q, Op::kTransposed);
  want.add(x, Op::kPlain, k, Op::kTransposed, 1.0, 10);
  want.add(u, Op::kPlain, b, Op::kTransposed, 3.0, 10);
  const ProductTerm terms[] = {{x.cview(), Op::kPlain, q.cview(), Op::kTransposed, 1.0f, 0, 10},
                               {x.cview(), Op::kPlain, k.cview(), Op::kTransposed, 1.0f, 10},
                               {u.cview(), Op::kPlain, b.cview(), Op::kTransposed, 3.0f, 10, 16}};
  product(ctx, c.view(), ConstMatrix(), terms);
  expect_near(c, want);
}

TEST(ProductEmulated, EmptySumsAreZeroOrTheBase) {
  const CudaContext ctx(0);
  DeviceMatrix<Bf16> a(ctx, 5, 0), b(ctx, 0, 4);
  DeviceMatrix<Bf16> c(ctx, 5, 7, 2), base(ctx, 5, 7, 1);
  base.fill("base");
  const Bf16ProductTerm terms[] = {{a.cview(), Op::kPlain, b.cview(), Op::kPlain, 1.0f, 1, 5}};
  product(ctx, c.view(), base.cview(), terms);
  EXPECT_TRUE(same_bytes(c.elements(), base.elements()));
  product(ctx, c.view(), ConstBf16Matrix(), terms);
  const std::vector<double> values = c.values();
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t j = 1; j < 5; ++j) EXPECT_EQ(values[static_cast<std::size_t>(r * 7 + j)], 0.0);
  EXPECT_TRUE(c.padding_intact());
}

}  // namespace
}  // namespace tandem::testing
