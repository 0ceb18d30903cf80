#include "kernels/cross_entropy.hpp"

#include "src/mirror/operations.hpp"
#include "tests/emulation/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

struct Loss {
  mirror::Matrix logits;
  std::vector<std::int32_t> target;

  Loss(std::int64_t rows, std::int64_t cols, double size = 8.0)
      : logits(drawn<float>("logits", rows, cols, size)) {
    for (std::int64_t n = 0; n < rows; ++n)
      target.push_back(static_cast<std::int32_t>(splitmix64(static_cast<std::uint64_t>(n)) %
                                                 static_cast<std::uint64_t>(cols)));
  }
};

template <class T>
class EmulatedCrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(EmulatedCrossEntropy, Formats, FormatNames);

TYPED_TEST(EmulatedCrossEntropy, MatchesTheMirror) {
  using T = TypeParam;
  const CudaContext ctx(0);
  // Up to several units a thread; more than the 163 KiB that are kept of a row.
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{0, 8},
                                   {1, 1},
                                   {3, 31},
                                   {33, 33},
                                   {3, 1003},
                                   {2, 5003},
                                   {1, 151937}}) {
    const Loss loss(rows, cols);
    DeviceArray<std::int32_t> target(ctx, loss.target);
    std::vector<T> gradient;
    const std::vector<float> nll = same_everywhere([&](Place place) {
      OnDevice<float> logits(ctx, loss.logits, place), out(ctx, 1, rows);
      OnDevice<T> own(ctx, rows, cols, place);
      cross_entropy(ctx, out.span(), logits.view(), target.span(), own.view());
      const std::vector<T> here = own.elements();
      if (gradient.empty()) gradient = here;
      EXPECT_TRUE(same_bytes(gradient, here));
      return out.elements();
    });
    OnDevice<float> logits(ctx, loss.logits), alone(ctx, 1, rows);
    cross_entropy(ctx, alone.span(), logits.view(), target.span(), MatrixView<T>());
    EXPECT_TRUE(same_bytes(nll, alone.elements())) << "without a gradient";

    const mirror::Matrix& x = loss.logits;
    const mirror::Matrix reference =
        mirror::cross_entropy(x, std::vector<std::int64_t>(loss.target.begin(), loss.target.end()));
    mirror::Matrix size(rows, 1), want(rows, cols), want_size(rows, cols);
    // A term of the sum passes through one exp (four roundings) and the rounding of its argument; then, a
    // unit of four that its thread takes, perhaps one more exp, a product and four additions; ten joins of
    // exp, product and addition. Their arguments' roundings add up to |x - max| at most, as each goes on from
    // where the last ended.
    const std::int64_t units = (cols + 3) / 4,
                       threads = std::clamp<std::int64_t>((units + 31) / 32 * 32, 32, 1024);
    const double through = 4 + static_cast<double>((units + threads - 1) / threads) * 9 + 10 * 6;
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::int64_t right = loss.target[static_cast<std::size_t>(n)];
      const mirror::Row row = x.row(n), p = (row.array() - (reference(n, 0) + row(right))).exp().matrix();
      const mirror::Row below = (row.array() - row.maxCoeff()).abs().matrix();
      const double of_sum = (below.array() + through).matrix().dot(p);
      const double log_sum = reference(n, 0) + row(right) - row.maxCoeff();
      // log is four roundings off, then the maximum comes to it, and the target's logit off it.
      size(n, 0) =
          of_sum + 4 * std::abs(log_sum) + std::abs(log_sum + row.maxCoeff()) + std::abs(reference(n, 0));
      want.row(n) = p;
      // exp with its argument, the sum's inverse, a product.
      want_size.row(n) = (p.array() * (below.array() + of_sum + 6)).matrix();
      want(n, right) -= 1;
      want_size(n, right) += std::abs(want(n, right));
    }
    expect_within(nll, reference, size, 1, cat("nll of ", rows, " x ", cols));
    expect_within(gradient, want, want_size, 1, cat("dlogits of ", rows, " x ", cols));
  }
}

TEST(EmulatedCrossEntropy, GradientMayTakeTheLogitsPlace) {
  const CudaContext ctx(0);
  const Loss loss(3, 4097);
  DeviceArray<std::int32_t> target(ctx, loss.target);
  OnDevice<float> logits(ctx, loss.logits), in_place(ctx, loss.logits), nll(ctx, 1, 3), again(ctx, 1, 3),
      gradient(ctx, 3, 4097);
  cross_entropy(ctx, nll.span(), logits.view(), target.span(), gradient.view());
  cross_entropy(ctx, again.span(), in_place.view(), target.span(), in_place.view());
  EXPECT_TRUE(same_bytes(nll.elements(), again.elements()));
  EXPECT_TRUE(same_bytes(gradient.elements(), in_place.elements()));
}

// The row with one dominating logit, last and first: p is 1 there, and the loss 0 or the distance.
TEST(EmulatedCrossEntropy, TreatsLargeLogits) {
  const CudaContext ctx(0);
  mirror::Matrix x = mirror::Matrix::Constant(4, 300, -1e4);
  x(0, 0) = 1e4, x(1, 299) = 1e4, x(2, 5) = 3e38, x(3, 7) = -std::numeric_limits<double>::infinity();
  DeviceArray<std::int32_t> target(ctx, {0, 0, 5, 8});
  OnDevice<float> logits(ctx, x), nll(ctx, 1, 4), gradient(ctx, 4, 300);
  cross_entropy(ctx, nll.span(), logits.view(), target.span(), gradient.view());
  const std::vector<float> values = nll.elements(), g = gradient.elements();
  EXPECT_EQ(values[0], 0.0f);
  EXPECT_EQ(values[1], 2e4f);
  EXPECT_EQ(values[2], 0.0f);
  EXPECT_NEAR(values[3], std::log(299.0), 1e4 * 0x1p-23);
  EXPECT_EQ(g[0], 0.0f);
  EXPECT_EQ(g[300], -1.0f);
  EXPECT_EQ(g[300 + 299], 1.0f);
  EXPECT_EQ(g[3 * 300 + 7], 0.0f);
}

TEST(EmulatedCrossEntropy, KeepsANaNOrInfinityInItsRow) {
  const CudaContext ctx(0);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Loss loss(3, 1003);
    loss.logits(1, 1002) = bad;
    DeviceArray<std::int32_t> target(ctx, loss.target);
    OnDevice<float> logits(ctx, loss.logits), nll(ctx, 1, 3), gradient(ctx, 3, 1003);
    cross_entropy(ctx, nll.span(), logits.view(), target.span(), gradient.view());
    const std::vector<float> values = nll.elements(), g = gradient.elements();
    for (std::size_t n = 0; n < 3; ++n) {
      EXPECT_EQ(std::isnan(values[n]), n == 1);
      EXPECT_EQ(std::any_of(g.begin() + static_cast<std::ptrdiff_t>(n * 1003),
                            g.begin() + static_cast<std::ptrdiff_t>((n + 1) * 1003),
                            [](float v) { return std::isnan(v); }),
                n == 1);
    }
  }
}

}  // namespace
}  // namespace tandem
