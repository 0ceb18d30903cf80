// RMSNorm, rotary positions, SwiGLU, gather and scatter, AdamW, norms against float64 references.
#include "kernels/adamw.hpp"
#include "kernels/cpu/vector_math.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "tests/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

TEST(ExpF32, StaysWithinItsBoundOverEveryFloat) {
  // Floats of [-87.3, 88.7] at a stride that visits every binade densely; the bound is the header's.
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0xFF800000u; bits += 97) {
    const float x = std::bit_cast<float>(bits);
    if (!(x > -87.3f && x < 88.7f)) continue;
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(cpu::exp_f32(x)) - want) / want);
  }
  EXPECT_LE(worst, 0x1p-23) << "relative error " << worst / kUnitF32 << " u";
}

TEST(ExpF32, TreatsTheEnds) {
  EXPECT_EQ(cpu::exp_f32(0.0f), 1.0f);
  EXPECT_EQ(cpu::exp_f32(-1000.0f), 0.0f);
  EXPECT_EQ(cpu::exp_f32(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(cpu::exp_f32(1000.0f), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(cpu::exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

class Rows : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};
INSTANTIATE_TEST_SUITE_P(AwkwardSizes, Rows,
                         ::testing::Values(std::pair{0, 8}, std::pair{1, 1}, std::pair{3, 31},
                                           std::pair{17, 33}, std::pair{33, 64}, std::pair{40, 1000}));

std::vector<double> rms_norm_reference(const TestMatrix& x, std::span<const float> w, double eps) {
  std::vector<double> y;
  for (std::int64_t t = 0; t < x.view().rows; ++t) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < x.view().cols; ++c) sum += x.at(t, c) * x.at(t, c);
    const double rstd = 1.0 / std::sqrt(sum / static_cast<double>(x.view().cols) + eps);
    for (std::int64_t c = 0; c < x.view().cols; ++c)
      y.push_back(static_cast<double>(w[static_cast<std::size_t>(c)]) * x.at(t, c) * rstd);
  }
  return y;
}

// Three roundings an element (rstd, x*rstd, w*...), values up to sqrt(C).
TEST_P(Rows, RmsNormForwardMatchesFloat64) {
  const auto [rows, cols] = GetParam();
  TestMatrix x(rows, cols, 1, 3), w(1, cols), y(rows, cols, 2, 1);
  x.fill("x"), w.fill("w");
  const float eps = 1e-5f;
  rms_norm_forward(CpuContext(2), y.view(), x.view(), w.flat(), eps);
  expect_near(y, rms_norm_reference(x, w.flat(), static_cast<double>(eps)),
              3.0 * kUnitF32 * std::sqrt(static_cast<double>(cols)), "y");
  EXPECT_TRUE(y.guards_intact());
}

// dx is linear in dy, so a central difference of sum(dy * y) in float64 is the gradient to h^2.
TEST_P(Rows, RmsNormBackwardMatchesFiniteDifferences) {
  const auto [rows, cols] = GetParam();
  TestMatrix x(rows, cols), w(1, cols), dy(rows, cols), dx(rows, cols), sum(rows, cols);
  x.fill("x"), w.fill("w"), dy.fill("dy"), sum.fill("residual");
  const double eps = 1e-5;
  rms_norm_backward(CpuContext(2), dx.view(), dy.view(), x.view(), w.flat(), static_cast<float>(eps), false);
  std::vector<double> want;
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto value = [&](double shift) {
        double squares = 0.0, dot = 0.0;
        for (std::int64_t j = 0; j < cols; ++j) {
          const double xj = x.at(t, j) + (j == c ? shift : 0.0);
          squares += xj * xj;
          dot += dy.at(t, j) * static_cast<double>(w.flat()[static_cast<std::size_t>(j)]) * xj;
        }
        return dot / std::sqrt(squares / static_cast<double>(cols) + eps);
      };
      const double h = 1e-5;
      want.push_back((value(h) - value(-h)) / (2.0 * h));
    }
  // Where a row has one element near zero the derivative reaches 1/sqrt(eps): scale by the largest.
  double scale = 1.0;
  for (const double v : want) scale = std::max(scale, std::abs(v));
  expect_near(dx, want, scale * (8.0 * kUnitF32 + 1e-7), "dx");
  rms_norm_backward(CpuContext(2), sum.view(), dy.view(), x.view(), w.flat(), static_cast<float>(eps), true);
  TestMatrix residual(rows, cols);
  residual.fill("residual");
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t c = 0; c < cols; ++c)
      EXPECT_NEAR(sum.at(t, c), residual.at(t, c) + dx.at(t, c), 2.0 * scale * kUnitF32);
}

TEST_P(Rows, SwigluMatchesFloat64AndItsDerivative) {
  const auto [rows, cols] = GetParam();
  TestMatrix gu(rows, 2 * cols, 1, 1), dh(rows, cols), h(rows, cols), dgu(rows, 2 * cols);
  gu.fill("gu", 8.0f), dh.fill("dh");
  swiglu_forward(CpuContext(2), h.view(), gu.view());
  swiglu_backward(CpuContext(2), dgu.view(), dh.view(), gu.view());
  std::vector<double> want, dwant(static_cast<std::size_t>(rows * 2 * cols));
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < cols; ++i) {
      const double g = gu.at(t, i), u = gu.at(t, cols + i), s = 1.0 / (1.0 + std::exp(-g));
      want.push_back(g * s * u);
      dwant[static_cast<std::size_t>(t * 2 * cols + i)] = dh.at(t, i) * u * s * (1.0 + g * (1.0 - s));
      dwant[static_cast<std::size_t>(t * 2 * cols + cols + i)] = dh.at(t, i) * g * s;
    }
  // |g u| <= 64, relative error of a handful of roundings, exp's own 2^-23 included.
  expect_near(h, want, 64.0 * 8.0 * kUnitF32, "h");
  expect_near(dgu, dwant, 64.0 * 12.0 * kUnitF32, "dgu");
}

struct RopeCase {
  HeadShape heads;
  bool norm;
};

class Rope : public ::testing::TestWithParam<RopeCase> {
 protected:
  static constexpr std::int64_t kTokens = 19, kPositions = 40;
  Rope()
      : qkv(kTokens, heads().qkv_cols(), 1, 1),
        q_norm(1, heads().head_dim),
        k_norm(1, heads().head_dim),
        cos(kPositions, heads().head_dim / 2),
        sin(kPositions, heads().head_dim / 2) {
    qkv.fill("qkv"), q_norm.fill("q_norm"), k_norm.fill("k_norm");
    std::vector<double> frequency;
    for (std::int64_t i = 0; i < heads().head_dim / 2; ++i)
      frequency.push_back(
          std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(heads().head_dim)));
    fill_rope_table(cos.view(), sin.view(), frequency);
    for (std::int64_t t = 0; t < kTokens; ++t) position.push_back(static_cast<std::int32_t>(t % 7 + 11));
  }
  const HeadShape& heads() const { return GetParam().heads; }
  RopeInputs inputs() const {
    RopeInputs in{{}, {}, 1e-5f, position, cos.view(), sin.view(), heads()};
    if (GetParam().norm) in.q_norm = q_norm.flat(), in.k_norm = k_norm.flat();
    return in;
  }
  // One head in float64; x of head_dim numbers.
  std::vector<double> reference(std::vector<double> x, std::span<const float> norm, std::int32_t p) const {
    const std::int64_t d = heads().head_dim;
    if (GetParam().norm) {
      double squares = 0.0;
      for (const double v : x) squares += v * v;
      const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(1e-5f));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] *= rstd * static_cast<double>(norm[i]);
    }
    std::vector<double> y(x.size());
    for (std::int64_t i = 0; i < d / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(i + d / 2);
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
    return y;
  }
  std::vector<double> head(const TestMatrix& m, std::int64_t t, std::int64_t column) const {
    std::vector<double> x;
    for (std::int64_t i = 0; i < heads().head_dim; ++i) x.push_back(m.at(t, column + i));
    return x;
  }

  TestMatrix qkv, q_norm, k_norm, cos, sin;
  std::vector<std::int32_t> position;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         ::testing::Values(RopeCase{{3, 1, 2}, true}, RopeCase{{4, 2, 34}, true},
                                           RopeCase{{4, 4, 64}, false}, RopeCase{{5, 1, 128}, true}));

TEST_P(Rope, ForwardMatchesFloat64) {
  const std::int64_t d = heads().head_dim;
  TestMatrix q(kTokens, heads().q_cols()), k(kTokens, heads().kv_cols());
  rope_forward(CpuContext(2), q.view(), k.view(), qkv.view(), inputs());
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t h = 0; h < heads().n_heads + heads().n_kv_heads; ++h) {
      const bool query = h < heads().n_heads;
      const auto want = reference(head(qkv, t, h * d), query ? q_norm.flat() : k_norm.flat(),
                                  position[static_cast<std::size_t>(t)]);
      for (std::int64_t i = 0; i < d; ++i) {
        const double got = query ? q.at(t, h * d + i) : k.at(t, (h - heads().n_heads) * d + i);
        // Normed values reach sqrt(D); cos and sin rounded, three roundings in the norm, two in the rotation.
        ASSERT_NEAR(got, want[static_cast<std::size_t>(i)],
                    8.0 * kUnitF32 * std::sqrt(static_cast<double>(d)));
      }
    }
  }
}

TEST_P(Rope, BackwardMatchesFiniteDifferencesAndLeavesTheValuesAlone) {
  const std::int64_t d = heads().head_dim;
  TestMatrix dq(kTokens, heads().q_cols()), dk(kTokens, heads().kv_cols()), dqkv(kTokens, heads().qkv_cols());
  dq.fill("dq"), dk.fill("dk");
  rope_backward(CpuContext(2), dqkv.view(), dq.view(), dk.view(), qkv.view(), inputs());
  for (std::int64_t t = 0; t < kTokens; t += 6)
    for (std::int64_t h = 0; h < heads().n_heads + heads().n_kv_heads; ++h) {
      const bool query = h < heads().n_heads;
      const auto dy = query ? head(dq, t, h * d) : head(dk, t, (h - heads().n_heads) * d);
      for (std::int64_t i = 0; i < d; ++i) {
        const auto value = [&](double shift) {
          auto x = head(qkv, t, h * d);
          x[static_cast<std::size_t>(i)] += shift;
          const auto y =
              reference(x, query ? q_norm.flat() : k_norm.flat(), position[static_cast<std::size_t>(t)]);
          double dot = 0.0;
          for (std::size_t j = 0; j < y.size(); ++j) dot += y[j] * dy[j];
          return dot;
        };
        const double want = (value(1e-5) - value(-1e-5)) / 2e-5;
        ASSERT_NEAR(dqkv.at(t, h * d + i), want, 1e-6 * std::max(8.0, std::abs(want)))
            << "head " << h << " channel " << i;
      }
    }
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t c = heads().q_cols() + heads().kv_cols(); c < heads().qkv_cols(); ++c)
      ASSERT_TRUE(std::isnan(dqkv.at(t, c)));
}

TEST(GatherScatter, MoveRowsAndZeroTheRest) {
  TestMatrix table(50, 33, 1), y(4, 33), x(9, 33);
  table.fill("table");
  const std::vector<std::int32_t> index = {7, 0, 49, 7}, places = {8, 0, 3, 5};
  gather_rows(CpuContext(2), y.view(), table.view(), index);
  for (std::int64_t t = 0; t < 4; ++t)
    for (std::int64_t c = 0; c < 33; ++c)
      ASSERT_EQ(y.at(t, c), table.at(index[static_cast<std::size_t>(t)], c));
  scatter_rows(CpuContext(2), x.view(), y.view(), places);
  for (std::int64_t t = 0; t < 9; ++t) {
    const auto place = std::find(places.begin(), places.end(), t);
    for (std::int64_t c = 0; c < 33; ++c)
      ASSERT_EQ(x.at(t, c), place == places.end() ? 0.0 : y.at(place - places.begin(), c));
  }
}

// Three steps in float64 from the same float32 state each time: every stored value within half an ulp and the
// double arithmetic's own error; 8 u is VALIDATION.md's bound for the step in isolation.
TEST(AdamW, StepMatchesFloat64WithinEightUnits) {
  const std::int64_t n = 40001;
  TestMatrix p(1, n), m(1, n), v(1, n), g(1, n);
  p.fill("p"), m.fill("m", 1e-3f), v.fill("v", 1e-6f), g.fill("g", 1e-2f);
  for (std::int64_t i = 0; i < n; ++i) v.view().data[i] = std::abs(v.view().data[i]);
  g.view().data[5] = 0.0f, m.view().data[5] = 0.0f, v.view().data[5] = 0.0f;
  const AdamwFactors f{3e-4, 0.9, 0.999, 1e-8, 0.01, 0.37, 5};
  const auto span = [n](TestMatrix& x) {
    return std::span<float>(x.view().data, static_cast<std::size_t>(n));
  };
  const TestMatrix p0 = p, m0 = m, v0 = v;
  adamw(CpuContext(2), span(p), span(m), span(v), span(g), f);
  for (std::int64_t i = 0; i < n; ++i) {
    const double grad = 0.37 * g.at(0, i);
    const double mi = 0.9 * m0.at(0, i) + 0.1 * grad, vi = 0.999 * v0.at(0, i) + 0.001 * grad * grad;
    const double step = 3e-4 / (1.0 - std::pow(0.9, 5.0)) * mi /
                        (std::sqrt(vi) / std::sqrt(1.0 - std::pow(0.999, 5.0)) + 1e-8);
    const double pi = p0.at(0, i) * (1.0 - 3e-4 * 0.01) - step;
    ASSERT_NEAR(m.at(0, i), mi, 8.0 * kUnitF32 * std::abs(mi) + 1e-300);
    ASSERT_NEAR(v.at(0, i), vi, 8.0 * kUnitF32 * vi + 1e-300);
    ASSERT_NEAR(p.at(0, i), pi, 8.0 * kUnitF32 * (std::abs(p0.at(0, i)) + std::abs(step)));
  }
}

TEST(SumOfSquares, HasTheSameBitsForAnyThreadsAndMatches) {
  TestMatrix x(1, 700001);
  x.fill("x");
  const auto values = x.flat().first(700001);
  long double want = 0.0L;
  for (const float value : values) want += static_cast<long double>(value) * static_cast<long double>(value);
  const double one = sum_of_squares(CpuContext(1), values);
  EXPECT_NEAR(one, static_cast<double>(want), 1e-12 * static_cast<double>(want));
  for (const int threads : {2, 3, 4}) EXPECT_EQ(one, sum_of_squares(CpuContext(threads), values));
  EXPECT_EQ(0.0, sum_of_squares(CpuContext(2), {}));
}

TEST(ElementwiseBits, DoNotDependOnThreadsStridesOrAlignment) {
  expect_same_bits_everywhere([](int threads, std::int64_t padding, std::int64_t offset) {
    const CpuContext ctx(threads);
    TestMatrix x(37, 65, padding, offset), dy(37, 65, padding, offset), w(1, 65, 0, offset),
        y(37, 65, padding, offset);
    x.fill("x"), dy.fill("dy"), w.fill("w"), y.fill("y");
    rms_norm_backward(ctx, y.view(), dy.view(), x.view(), w.flat().first(65), 1e-6f, true);
    TestMatrix gu(37, 130, padding, offset), dgu(37, 130, padding, offset);
    gu.fill("gu");
    swiglu_backward(ctx, dgu.view(), y.view(), gu.view());
    return dgu.elements();
  });
}

}  // namespace
}  // namespace tandem
