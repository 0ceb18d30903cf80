// What observations are made of: largest logits, magnitudes of rows, norms of products and differences.
#include <numeric>

#include "kernels/norms.hpp"
#include "kernels/row_magnitude.hpp"
#include "kernels/top_k.hpp"
#include "tests/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

constexpr std::int64_t kTop = 8;

struct Top {
  std::vector<std::int64_t> id;
  std::vector<float> value;
};

Top top_of(const TestMatrix& x, int threads) {
  const auto n = static_cast<std::size_t>(x.view().rows * kTop);
  Top top{std::vector<std::int64_t>(n, 99), std::vector<float>(n, 99.0f)};
  top_k(CpuContext(threads), top.id, top.value, x.view(), kTop);
  return top;
}

class TopK : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, TopK, ::testing::Values(1, 7, 8, 9, 255, 256, 257, 3000));

TEST_P(TopK, IsTheHeadOfAStableSort) {
  const std::int64_t rows = 5, cols = GetParam();
  for (const float steps : {1e9f, 6.0f}) {  // all different, and many equal
    TestMatrix x(rows, cols, 3, 1);
    x.fill("x");
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        x.view().row(r)[c] = std::round(x.view().row(r)[c] * steps) / steps;
    const Top top = top_of(x, 2);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(cols));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int64_t a, std::int64_t b) { return x.at(r, a) > x.at(r, b); });
      for (std::int64_t k = 0; k < kTop; ++k) {
        const auto at = static_cast<std::size_t>(r * kTop + k);
        if (k >= cols) {
          EXPECT_EQ(top.id[at], -1);
          EXPECT_TRUE(std::isnan(top.value[at]));
          continue;
        }
        const std::int64_t wanted = order[static_cast<std::size_t>(k)];
        EXPECT_EQ(top.id[at], wanted) << "row " << r << ", rank " << k;
        EXPECT_EQ(static_cast<double>(top.value[at]), x.at(r, wanted));
      }
    }
  }
}

TEST(TopKAtTheEdges, TakesMinusInfinityAndPassesOverNaN) {
  TestMatrix x(1, 600);
  x.fill("x");
  float* row = x.view().row(0);
  for (std::int64_t c = 0; c < 600; ++c) row[c] = -std::numeric_limits<float>::infinity();
  row[3] = std::numeric_limits<float>::quiet_NaN();
  row[599] = 1.0f;
  const Top top = top_of(x, 1);
  EXPECT_EQ(top.id, (std::vector<std::int64_t>{599, 0, 1, 2, 4, 5, 6, 7}));
}

TEST(RowMagnitude, IsTheSumOfSquaresAndTheLargestMagnitude) {
  for (const auto& [rows, cols] :
       {std::pair{0, 5}, std::pair{1, 1}, std::pair{40, 33}, std::pair{17, 1000}}) {
    TestMatrix x(rows, cols, 2, 3);
    x.fill("x");
    if (rows > 3) x.view().row(3)[cols - 1] = -7.0f;
    std::vector<double> squares(static_cast<std::size_t>(rows));
    std::vector<float> absmax(squares.size());
    row_magnitude(CpuContext(3), squares, absmax, x.view());
    for (std::int64_t t = 0; t < rows; ++t) {
      double sum = 0.0, most = 0.0;
      for (std::int64_t c = 0; c < cols; ++c) {
        sum += x.at(t, c) * x.at(t, c);
        most = std::max(most, std::abs(x.at(t, c)));
      }
      // Additions in double: at most one rounding each.
      EXPECT_NEAR(squares[static_cast<std::size_t>(t)], sum, static_cast<double>(cols) * 0x1p-53 * sum);
      EXPECT_EQ(static_cast<double>(absmax[static_cast<std::size_t>(t)]), most);
    }
  }
}

TEST(ProductNorm, IsThatOfTheFormedProduct) {
  for (const auto& [out, r, in] : {std::tuple{5, 1, 7}, std::tuple{40, 16, 33}, std::tuple{19, 70, 300}}) {
    TestMatrix a(r, in), b(out, r);
    a.fill("a"), b.fill("b");
    double squares = 0.0;
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        double y = 0.0;
        for (std::int64_t k = 0; k < r; ++k) y += b.at(o, k) * a.at(k, i);
        squares += y * y;
      }
    const auto squared = [](const TestMatrix& m) {
      double sum = 0.0;
      for (const float value : m.elements()) sum += static_cast<double>(value) * static_cast<double>(value);
      return sum;
    };
    // The header's bound of the square, twice for the root of both.
    const double bound = 2.0 * (out + in) * 0x1p-53 * squared(a) * squared(b) / squares;
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(product_norm(CpuContext(2), b.view(), a.view()), norm, bound * norm) << out << " " << r;
  }
}

TEST(ProductNorm, OfAProductThatVanishesIsZero) {
  TestMatrix a(2, 9), b(7, 2), zero(7, 2);
  a.fill("a"), b.fill("b"), zero.fill("z", 0.0f);
  EXPECT_EQ(product_norm(CpuContext(1), zero.view(), a.view()), 0.0);
  // Two equal rows of a, opposite columns of b.
  for (std::int64_t c = 0; c < 9; ++c) a.view().row(1)[c] = a.view().row(0)[c];
  for (std::int64_t o = 0; o < 7; ++o) b.view().row(o)[1] = -b.view().row(o)[0];
  EXPECT_EQ(product_norm(CpuContext(1), b.view(), a.view()), 0.0);
}

TEST(DifferenceNorm, IsThatOfTheDifferences) {
  for (const std::int64_t n : {0, 1, 5000, 600'000}) {
    TestMatrix x(1, n), y(1, n);
    x.fill("x"), y.fill("y");
    double squares = 0.0;
    for (std::int64_t i = 0; i < n; ++i) squares += std::pow(x.at(0, i) - y.at(0, i), 2.0);
    const auto flat = [&](const TestMatrix& m) { return m.flat().first(static_cast<std::size_t>(n)); };
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(difference_norm(CpuContext(2), flat(x), flat(y)), norm,
                static_cast<double>(n) * 0x1p-53 * norm);
    EXPECT_EQ(difference_norm(CpuContext(2), flat(x), flat(x)), 0.0);
  }
}

TEST(Observations, HaveTheSameBitsOnAnyNumberOfThreadsAtAnyAlignment) {
  TestMatrix reference(37, 999, 0, 0);
  reference.fill("x");
  TestMatrix a(20, 999), b(37, 20);
  a.fill("a"), b.fill("b");
  const auto all = [&](int threads, std::int64_t offset) {
    TestMatrix x(37, 999, offset, offset);
    x.fill("x");
    const CpuContext ctx(threads);
    std::vector<double> numbers(37);
    std::vector<float> absmax(37);
    row_magnitude(ctx, numbers, absmax, x.view());
    numbers.insert(numbers.end(), absmax.begin(), absmax.end());
    numbers.push_back(product_norm(ctx, b.view(), x.view().row_range(0, 20)));
    numbers.push_back(difference_norm(ctx, {x.view().row(0), 999}, {a.view().row(3), 999}));
    return numbers;
  };
  const std::vector<double> wanted = all(1, 0);
  for (int threads = 1; threads <= 4; ++threads)
    for (const std::int64_t offset : {0, 1, 3, 7}) EXPECT_EQ(all(threads, offset), wanted);
  EXPECT_EQ(top_of(reference, 1).id, top_of(reference, 4).id);
}

}  // namespace
}  // namespace tandem
