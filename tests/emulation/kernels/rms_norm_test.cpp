#include "kernels/rms_norm.hpp"

#include "src/mirror/differentiable.hpp"
#include "tests/emulation/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

constexpr float kEps = 1e-6f;
constexpr double kSize = 2e-3;  // of x: so small that eps counts
constexpr int kThreads = 128;   // a block's, as kernels/cuda/rms_norm.cu has it
constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{0, 8},   {3, 0},    {1, 1},   {2, 31},
                                                            {33, 33}, {2, 1000}, {1, 4099}};

template <class T>
class EmulatedRmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(EmulatedRmsNorm, Formats, FormatNames);

// rstd: the sum, its products, the mean, + eps; half of that by the root, then the root itself and the
// quotient.
double rstd_roundings(std::int64_t cols) { return (additions(cols, kThreads) + 3) / 2.0 + 2; }

TYPED_TEST(EmulatedRmsNorm, ForwardMatchesTheMirror) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, cols] : kSizes) {
    const mirror::Matrix x = drawn<float>("x", rows, cols, kSize), w = drawn<float>("w", 1, cols);
    const std::vector<T> y = same_everywhere([&](Place place) {
      OnDevice<float> in(ctx, x, place), weight(ctx, w, {0, place.offset});
      OnDevice<T> out(ctx, rows, cols, place);
      rms_norm_forward(ctx, out.view(), in.cview(), weight.span(), kEps);
      return out.elements();
    });
    const mirror::Matrix want = mirror::rms_norm(x, w.row(0), static_cast<double>(kEps));
    expect_within(y, want, want.cwiseAbs(), rstd_roundings(cols) + 2, cat("y of ", rows, " x ", cols));
  }
}

TYPED_TEST(EmulatedRmsNorm, BackwardMatchesTheMirrorWithAndWithoutAccumulation) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, cols] : kSizes) {
    if (cols == 0) continue;
    const mirror::Matrix x = drawn<float>("x", rows, cols, kSize), w = drawn<float>("w", 1, cols),
                         dy = drawn<T>("dy", rows, cols), old = drawn<float>("dx", rows, cols);
    mirror::Tape tape;
    const mirror::Var in = tape.variable(x);
    const mirror::Var out = mirror::rms_norm(in, w.row(0), static_cast<double>(kEps));
    tape.backward(out, dy);
    // |r w g| + |x| r^3 mean |w g x|: the terms of dx.
    const double n = static_cast<double>(cols);
    const mirror::Column r = 1 / (x.rowwise().squaredNorm().array() / n + static_cast<double>(kEps)).sqrt();
    const mirror::Matrix gw = (dy.array().rowwise() * w.row(0).array()).abs().matrix();
    const mirror::Column mean = gw.cwiseProduct(x.cwiseAbs()).rowwise().sum() / n;
    const mirror::Column along = (r.array().cube() * mean.array()).matrix();
    const mirror::Matrix size =
        ((gw.array().colwise() * r.array()) + (x.array().abs().colwise() * along.array())).matrix();
    // The projection: rstd three times, its sum with two products a term, two more of rstd, one with it, the
    // quotient; then a product and two additions.
    const double roundings = 3 * rstd_roundings(cols) + additions(cols, kThreads) + 2 + 4 + 3;
    for (const bool accumulate : {false, true}) {
      const std::vector<float> dx = same_everywhere([&](Place place) {
        OnDevice<float> own_x(ctx, x, place), weight(ctx, w, {0, place.offset});
        OnDevice<T> own_dy(ctx, dy, place);
        OnDevice<float> result =
            accumulate ? OnDevice<float>(ctx, old, place) : OnDevice<float>(ctx, rows, cols, place);
        rms_norm_backward(ctx, result.view(), own_dy.cview(), own_x.cview(), weight.span(), kEps, accumulate);
        return result.elements();
      });
      const mirror::Matrix want = accumulate ? (old + tape.gradient(in)).eval() : tape.gradient(in);
      expect_within(dx, want, accumulate ? (old.cwiseAbs() + size).eval() : size, roundings,
                    cat("dx of ", rows, " x ", cols));
    }
  }
}

TEST(EmulatedRmsNorm, ForwardMayOverwriteItsInput) {
  const CudaContext ctx(0);
  const mirror::Matrix x = drawn<float>("x", 5, 700), w = drawn<float>("w", 1, 700);
  OnDevice<float> apart(ctx, x), in_place(ctx, x), weight(ctx, w), y(ctx, 5, 700);
  rms_norm_forward(ctx, y.view(), apart.cview(), weight.span(), kEps);
  rms_norm_forward(ctx, in_place.view(), in_place.cview(), weight.span(), kEps);
  EXPECT_TRUE(same_bytes(y.elements(), in_place.elements()));
}

TYPED_TEST(EmulatedRmsNorm, KeepsANaNInItsRow) {
  using T = TypeParam;
  const CudaContext ctx(0);
  mirror::Matrix x = drawn<float>("x", 3, 40);
  x(1, 39) = std::numeric_limits<double>::quiet_NaN();
  OnDevice<float> in(ctx, x), weight(ctx, drawn<float>("w", 1, 40)), dx(ctx, 3, 40);
  OnDevice<T> y(ctx, 3, 40), dy(ctx, drawn<T>("dy", 3, 40));
  rms_norm_forward(ctx, y.view(), in.cview(), weight.span(), kEps);
  rms_norm_backward(ctx, dx.view(), dy.cview(), in.cview(), weight.span(), kEps, false);
  const std::vector<T> values = y.elements();
  const std::vector<float> gradient = dx.elements();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::isnan(value_of(values[i])), i / 40 == 1) << i;
    EXPECT_EQ(std::isnan(gradient[i]), i / 40 == 1) << i;
  }
}

}  // namespace
}  // namespace tandem
