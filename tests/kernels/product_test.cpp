#include "kernels/product.hpp"

#include "src/base/error.hpp"
#include "tests/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

double element(const TestMatrix& m, Op op, std::int64_t r, std::int64_t c) {
  return op == Op::kPlain ? m.at(r, c) : m.at(c, r);
}

struct Case {
  std::int64_t m, n, k;
  Op op_a, op_b;
};

class ProductCases : public ::testing::TestWithParam<Case> {};

// Tolerance: K products of numbers below 1 in float, in any order: |error| <= gamma_K sum |a b| <= K * K * u.
TEST_P(ProductCases, MatchesFloat64) {
  const Case c = GetParam();
  TestMatrix a(c.op_a == Op::kPlain ? c.m : c.k, c.op_a == Op::kPlain ? c.k : c.m, 3, 1);
  TestMatrix b(c.op_b == Op::kPlain ? c.k : c.n, c.op_b == Op::kPlain ? c.n : c.k, 5, 2);
  TestMatrix out(c.m, c.n, 2, 1);
  a.fill("a"), b.fill("b");
  product(CpuContext(2), out.view(), {}, {{a.view(), c.op_a, b.view(), c.op_b, 0.5f}});
  std::vector<double> want;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < c.k; ++k) sum += element(a, c.op_a, i, k) * element(b, c.op_b, k, j);
      want.push_back(0.5 * sum);
    }
  const auto k = static_cast<double>(c.k);
  expect_near(out, want, 0.5 * (k + 2.0) * std::max(1.0, k) * kUnitF32, "product");
  EXPECT_TRUE(out.guards_intact());
}

INSTANTIATE_TEST_SUITE_P(AwkwardSizes, ProductCases,
                         ::testing::Values(Case{1, 1, 1, Op::kPlain, Op::kPlain},
                                           Case{31, 33, 17, Op::kPlain, Op::kTransposed},
                                           Case{33, 31, 129, Op::kPlain, Op::kPlain},
                                           Case{16, 700, 65, Op::kTransposed, Op::kPlain},
                                           Case{515, 16, 64, Op::kTransposed, Op::kPlain},
                                           Case{513, 514, 7, Op::kPlain, Op::kTransposed},
                                           Case{1, 130, 300, Op::kTransposed, Op::kTransposed},
                                           Case{0, 5, 3, Op::kPlain, Op::kPlain},
                                           Case{5, 0, 3, Op::kPlain, Op::kPlain},
                                           Case{3, 4, 0, Op::kPlain, Op::kPlain}));

TEST(Product, AddsItsTermsInColumnRangesToTheBase) {
  TestMatrix x(70, 40), w(300, 40), u(70, 8), b(100, 8), base(70, 300), out(70, 300);
  x.fill("x"), w.fill("w"), u.fill("u"), b.fill("b"), base.fill("base");
  product(CpuContext(2), out.view(), base.view(),
          {{x.view(), Op::kPlain, w.view(), Op::kTransposed},
           {u.view(), Op::kPlain, b.view(), Op::kTransposed, 2.0f, 90, 190}});
  std::vector<double> want;
  for (std::int64_t i = 0; i < 70; ++i)
    for (std::int64_t j = 0; j < 300; ++j) {
      double sum = base.at(i, j);
      for (std::int64_t k = 0; k < 40; ++k) sum += x.at(i, k) * w.at(j, k);
      if (j >= 90 && j < 190)
        for (std::int64_t k = 0; k < 8; ++k) sum += 2.0 * u.at(i, k) * b.at(j - 90, k);
      want.push_back(sum);
    }
  expect_near(out, want, 60.0 * 60.0 * kUnitF32, "terms");
}

TEST(Product, DisjointTermsNeedNoBase) {
  TestMatrix dy(50, 60), b1(20, 4), b2(40, 4), out(50, 8);
  dy.fill("dy"), b1.fill("b1"), b2.fill("b2");
  product(CpuContext(1), out.view(), {},
          {{dy.view().col_range(0, 20), Op::kPlain, b1.view(), Op::kPlain, 1.0f, 0, 4},
           {dy.view().col_range(20, 60), Op::kPlain, b2.view(), Op::kPlain, 1.0f, 4, 8}});
  for (const float value : out.elements()) EXPECT_FALSE(std::isnan(value));
}

TEST(Product, RefusesShapesThatDoNotFit) {
  TestMatrix a(3, 4), b(5, 6), c(3, 6);
  try {
    product(CpuContext(1), c.view(), {}, {{a.view(), Op::kPlain, b.view(), Op::kPlain}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "product: [3, 4] x [5, 6] does not fit columns [0, 6) of c [3, 6]");
  }
}

TEST(Product, RefusesTermsThatOverlapInPart) {
  TestMatrix a(3, 4), b(4, 4), c(3, 6);
  EXPECT_THROW(product(CpuContext(1), c.view(), {},
                       {{a.view(), Op::kPlain, b.view(), Op::kPlain, 1.0f, 0, 4},
                        {a.view(), Op::kPlain, b.view(), Op::kPlain, 1.0f, 2, 6}}),
               Error);
}

class ProductBits : public ::testing::TestWithParam<Case> {};

TEST_P(ProductBits, DoNotDependOnThreadsStridesOrAlignment) {
  const Case c = GetParam();
  expect_same_bits_everywhere([&](int threads, std::int64_t padding, std::int64_t offset) {
    TestMatrix a(c.op_a == Op::kPlain ? c.m : c.k, c.op_a == Op::kPlain ? c.k : c.m, padding, offset);
    TestMatrix b(c.op_b == Op::kPlain ? c.k : c.n, c.op_b == Op::kPlain ? c.n : c.k, padding, offset);
    TestMatrix out(c.m, c.n, padding, offset);
    a.fill("a"), b.fill("b");
    product(CpuContext(threads), out.view(), {}, {{a.view(), c.op_a, b.view(), c.op_b}});
    return out.elements();
  });
}

// The shapes of an update: projections, the adapters' thin products and their gradients, the head.
INSTANTIATE_TEST_SUITE_P(UpdateShapes, ProductBits,
                         ::testing::Values(Case{350, 512, 256, Op::kPlain, Op::kTransposed},
                                           Case{350, 256, 512, Op::kPlain, Op::kPlain},
                                           Case{350, 48, 256, Op::kPlain, Op::kTransposed},
                                           Case{350, 512, 16, Op::kPlain, Op::kTransposed},
                                           Case{48, 256, 350, Op::kTransposed, Op::kPlain},
                                           Case{512, 16, 350, Op::kTransposed, Op::kPlain},
                                           Case{1, 700, 256, Op::kPlain, Op::kTransposed},
                                           Case{37, 1000, 65, Op::kPlain, Op::kTransposed}));

}  // namespace
}  // namespace tandem
