#include "kernels/attention.hpp"

#include "kernels/cross_entropy.hpp"
#include "tests/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

struct Case {
  HeadShape heads;
  std::vector<std::int32_t> begin;
};

// Attention and its gradients in float64, the plain way.
struct Reference {
  std::vector<double> o, lse, dq, dk, dv;

  Reference(const Case& c, const TestMatrix& q, const TestMatrix& k, const TestMatrix& v,
            const TestMatrix& d) {
    const std::int64_t tokens = c.begin.back(), dim = c.heads.head_dim,
                       group = c.heads.n_heads / c.heads.n_kv_heads;
    const std::int64_t qc = c.heads.q_cols(), kc = c.heads.kv_cols();
    o.resize(static_cast<std::size_t>(tokens * qc)), dq = o;
    dk.resize(static_cast<std::size_t>(tokens * kc)), dv = dk;
    lse.resize(static_cast<std::size_t>(tokens * c.heads.n_heads));
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    for (std::size_t s = 0; s + 1 < c.begin.size(); ++s)
      for (std::int64_t h = 0; h < c.heads.n_heads; ++h)
        for (std::int64_t t = c.begin[s]; t < c.begin[s + 1]; ++t) {
          const std::int64_t first = c.begin[s], n = t - first + 1, qh = h * dim, kh = h / group * dim;
          std::vector<double> p(static_cast<std::size_t>(n)), dp(p.size());
          double sum = 0.0, delta = 0.0;
          for (std::int64_t u = 0; u < n; ++u) {
            double dot = 0.0;
            for (std::int64_t i = 0; i < dim; ++i) dot += q.at(t, qh + i) * k.at(first + u, kh + i);
            sum += p[static_cast<std::size_t>(u)] = std::exp(scale * dot);
          }
          lse[static_cast<std::size_t>(h * tokens + t)] = std::log(sum);
          for (std::int64_t u = 0; u < n; ++u) {
            double& pu = p[static_cast<std::size_t>(u)];
            pu /= sum;
            for (std::int64_t i = 0; i < dim; ++i) {
              o[static_cast<std::size_t>(t * qc + qh + i)] += pu * v.at(first + u, kh + i);
              dp[static_cast<std::size_t>(u)] += d.at(t, qh + i) * v.at(first + u, kh + i);
              dv[static_cast<std::size_t>((first + u) * kc + kh + i)] += pu * d.at(t, qh + i);
            }
            delta += pu * dp[static_cast<std::size_t>(u)];
          }
          for (std::int64_t u = 0; u < n; ++u) {
            const double ds =
                scale * p[static_cast<std::size_t>(u)] * (dp[static_cast<std::size_t>(u)] - delta);
            for (std::int64_t i = 0; i < dim; ++i) {
              dq[static_cast<std::size_t>(t * qc + qh + i)] += ds * k.at(first + u, kh + i);
              dk[static_cast<std::size_t>((first + u) * kc + kh + i)] += ds * q.at(t, qh + i);
            }
          }
        }
  }
};

struct Operands {
  explicit Operands(const Case& c, std::int64_t padding = 1, std::int64_t offset = 1)
      : q(c.begin.back(), c.heads.q_cols(), padding, offset),
        k(c.begin.back(), c.heads.kv_cols(), padding, offset),
        v(c.begin.back(), c.heads.kv_cols(), padding, offset),
        d(c.begin.back(), c.heads.q_cols(), padding, offset),
        o(c.begin.back(), c.heads.q_cols(), padding, offset),
        lse(c.heads.n_heads, c.begin.back()),
        dq(c.begin.back(), c.heads.q_cols(), padding, offset),
        dk(c.begin.back(), c.heads.kv_cols(), padding, offset),
        dv(c.begin.back(), c.heads.kv_cols(), padding, offset) {
    q.fill("q", 2.0f), k.fill("k", 2.0f), v.fill("v"), d.fill("d");
  }
  void run(const Case& c, int threads) {
    const CpuContext ctx(threads);
    attention_forward(ctx, o.view(), lse.view(), q.view(), k.view(), v.view(), c.begin, c.heads);
    attention_backward(ctx, dq.view(), dk.view(), dv.view(), d.view(), o.view(), lse.view(), q.view(),
                       k.view(), v.view(), c.begin, c.heads);
  }
  TestMatrix q, k, v, d, o, lse, dq, dk, dv;
};

class Attention : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(Case{{1, 1, 2}, {0, 1}}, Case{{2, 1, 8}, {0, 1, 3, 3, 34}},
                                           Case{{6, 3, 16}, {0, 127, 256, 385}}, Case{{4, 4, 64}, {0, 130}},
                                           Case{{2, 2, 32}, {0, 700, 720}}, Case{{3, 1, 128}, {0, 33, 64}}));

// A score is a dot product of D numbers below 4: its error 4 D u sqrt-ish enters the probabilities
// relatively; outputs are averages of numbers below 1. k = 8 covers exp and the sums over up to 700 keys.
TEST_P(Attention, ForwardAndBackwardMatchFloat64) {
  const Case c = GetParam();
  Operands x(c);
  x.run(c, 2);
  const Reference want(c, x.q, x.k, x.v, x.d);
  const double dim = static_cast<double>(c.heads.head_dim);
  const double score_error = 4.0 * std::sqrt(dim) * kUnitF32;
  const double group = static_cast<double>(c.heads.n_heads / c.heads.n_kv_heads);
  std::int32_t longest = 1;
  for (std::size_t s = 0; s + 1 < c.begin.size(); ++s)
    longest = std::max(longest, c.begin[s + 1] - c.begin[s]);
  const double rows = static_cast<double>(longest);
  expect_near(x.o, want.o, 8.0 * score_error, "o");
  expect_near(x.lse, want.lse, 8.0 * score_error, "lse");
  expect_near(x.dq, want.dq, 8.0 * score_error * std::sqrt(dim), "dq");
  expect_near(x.dk, want.dk, 8.0 * score_error * std::sqrt(dim) * group * std::sqrt(rows), "dk");
  expect_near(x.dv, want.dv, 8.0 * score_error * group * std::sqrt(rows), "dv");
  for (const TestMatrix* m : {&x.o, &x.dq, &x.dk, &x.dv}) EXPECT_TRUE(m->guards_intact());
}

TEST_P(Attention, BitsDoNotDependOnThreadsStridesOrAlignment) {
  const Case c = GetParam();
  expect_same_bits_everywhere([&](int threads, std::int64_t padding, std::int64_t offset) {
    Operands x(c, padding, offset);
    x.run(c, threads);
    std::vector<float> all;
    for (const TestMatrix* m : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv}) {
      const auto part = m->elements();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  });
}

TEST(Attention, PackedSamplesDoNotSeeEachOther) {
  const Case packed{{4, 2, 16}, {0, 40, 90}}, alone{{4, 2, 16}, {0, 50}};
  Operands x(packed), y(alone);
  const auto copy = [&](TestMatrix& to, TestMatrix& from) {
    for (std::int64_t t = 0; t < 50; ++t)
      std::copy_n(from.view().row(40 + t), from.view().cols, to.view().row(t));
  };
  copy(y.q, x.q), copy(y.k, x.k), copy(y.v, x.v), copy(y.d, x.d);
  x.run(packed, 2);
  y.run(alone, 1);
  for (std::int64_t t = 0; t < 50; ++t)
    for (std::int64_t c = 0; c < 64; ++c) {
      ASSERT_EQ(x.o.at(40 + t, c), y.o.at(t, c));
      ASSERT_EQ(x.dq.at(40 + t, c), y.dq.at(t, c));
    }
}

// The last queries of a sample against all its keys: what the whole forward pass gives, whatever their
// number.
TEST(Attention, TheLastQueriesAloneGiveTheirRows) {
  for (const std::int32_t n : {1, 130, 700}) {
    const Case c{{6, 3, 16}, {0, n}};
    Operands x(c);
    x.run(c, 2);
    const double score_error = 4.0 * std::sqrt(16.0) * kUnitF32;
    for (const std::int32_t t : {1, 33, 129, 513, 700}) {
      if (t > n) continue;
      TestMatrix o(t, c.heads.q_cols(), 3, 1);
      std::vector<double> want;
      for (std::int64_t i = n - t; i < n; ++i)
        for (std::int64_t j = 0; j < c.heads.q_cols(); ++j) want.push_back(x.o.at(i, j));
      attention_cached(CpuContext(2), o.view(), ConstMatrix(x.q.view()).row_range(n - t, n), x.k.view(),
                       x.v.view(), c.heads);
      expect_near(o, want, 16.0 * score_error, "o");  // both have the bound of ForwardAndBackwardMatchFloat64
      EXPECT_TRUE(o.guards_intact());
    }
  }
}

TEST(CrossEntropy, MatchesFloat64) {
  for (const std::int64_t vocab : {1, 31, 259, 5000}) {
    const std::int64_t n = 9;
    TestMatrix logits(n, vocab, 3, 1), nll(1, n);
    logits.fill("logits", 20.0f);
    const TestMatrix before = logits;
    std::vector<std::int32_t> target;
    for (std::int64_t i = 0; i < n; ++i) target.push_back(static_cast<std::int32_t>(i * 7919 % vocab));
    cross_entropy(CpuContext(2), {nll.view().data, static_cast<std::size_t>(n)}, logits.view(), target,
                  logits.view());
    std::vector<double> want_nll, want_gradient;
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(before.at(i, v));
      want_nll.push_back(std::log(sum) - before.at(i, target[static_cast<std::size_t>(i)]));
      for (std::int64_t v = 0; v < vocab; ++v)
        want_gradient.push_back(std::exp(before.at(i, v)) / sum -
                                (v == target[static_cast<std::size_t>(i)] ? 1.0 : 0.0));
    }
    // Differences of logits up to 40 are exact or rounded once; exp's bound; the last rounding of a number up
    // to 50.
    expect_near(nll, want_nll, 64.0 * kUnitF32, "nll");
    expect_near(logits, want_gradient, 64.0 * kUnitF32, "gradient");
    EXPECT_TRUE(logits.guards_intact());
  }
}

TEST(CrossEntropy, SurvivesHugeLogits) {
  TestMatrix logits(1, 40), nll(1, 1);
  logits.fill("logits");
  logits.view().row(0)[3] = 1e30f;
  const std::vector<std::int32_t> target = {3};
  cross_entropy(CpuContext(1), {nll.view().data, 1}, logits.view(), target, logits.view());
  EXPECT_EQ(nll.at(0, 0), 0.0);
  EXPECT_EQ(logits.at(0, 3), 0.0);
}

}  // namespace
}  // namespace tandem
