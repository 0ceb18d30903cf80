#include "kernels/attention.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "src/base/error.hpp"
#include "tests/emulation/attention_reference.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

template <class T>
constexpr Roundoffs kRoundoffs = std::is_same_v<T, Bf16> ? kBf16Roundoffs : kF32Roundoffs;

// How the operands of a run lie in memory.
struct Layout {
  std::int64_t padding = 0, offset = 0;  // 16-byte accesses only where both are multiples of 16 bytes
};

template <class T>
struct Operands {
  Operands(const CudaContext& ctx_, const AttentionCase& c, const Layout& lies = {}, double score_scale = 2.0)
      : ctx(&ctx_),
        shape(c),
        begin(ctx_, c.begin),
        qkv(ctx_, c.n_tokens(), c.heads.qkv_cols(), lies.padding, lies.offset),
        q(ctx_, c.n_tokens(), c.heads.q_cols(), lies.padding, lies.offset),
        k(ctx_, c.n_tokens(), c.heads.kv_cols(), lies.padding, lies.offset),
        d(ctx_, c.n_tokens(), c.heads.q_cols(), lies.padding, lies.offset),
        o(ctx_, c.n_tokens(), c.heads.q_cols(), lies.padding, lies.offset),
        dq(ctx_, c.n_tokens(), c.heads.q_cols(), lies.padding, lies.offset),
        dk(ctx_, c.n_tokens(), c.heads.kv_cols(), lies.padding, lies.offset),
        dv(ctx_, c.n_tokens(), c.heads.kv_cols(), lies.padding, lies.offset),
        lse(ctx_, c.heads.n_heads, c.n_tokens()) {
    qkv.fill("qkv"), q.fill("q", score_scale), k.fill("k", score_scale), d.fill("d");
  }
  // Values are columns of the fused product, as in training.
  MatrixView<const T> v() const {
    return qkv.cview().col_range(shape.heads.q_cols() + shape.heads.kv_cols(), shape.heads.qkv_cols());
  }
  std::vector<double> v_values() const {
    const std::vector<double> all = qkv.values();
    std::vector<double> out;
    const std::int64_t cols = shape.heads.qkv_cols(), n = shape.heads.kv_cols();
    for (std::int64_t t = 0; t < shape.n_tokens(); ++t)
      out.insert(out.end(), all.begin() + (t + 1) * cols - n, all.begin() + (t + 1) * cols);
    return out;
  }
  void forward(const Matrix& kept) const {
    attention_forward(*ctx, o.view(), kept, q.cview(), k.cview(), v(), begin.cspan(), shape.heads);
  }
  void run() const {
    forward(lse.view());
    attention_backward(*ctx, dq.view(), dk.view(), dv.view(), d.cview(), o.cview(), lse.cview(), q.cview(),
                       k.cview(), v(), begin.cspan(), shape.heads);
  }
  std::vector<std::vector<double>> results() const {
    return {o.values(), lse.values(), dq.values(), dk.values(), dv.values()};
  }
  bool padding_intact() const {
    return o.padding_intact() && dq.padding_intact() && dk.padding_intact() && dv.padding_intact();
  }

  const CudaContext* ctx;
  AttentionCase shape;
  DeviceArray<std::int32_t> begin;
  DeviceMatrix<T> qkv, q, k, d, o, dq, dk, dv;
  DeviceMatrix<float> lse;
};

void expect_within(const std::vector<double>& got, const Bounded& want, const char* what) {
  ASSERT_EQ(got.size(), want.value.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want.value[i]) <= want.bound[i])) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", should be " << want.value[i]
                    << " within " << want.bound[i];
      return;
    }
}

template <class T>
void expect_as_reference(const Operands<T>& x) {
  const AttentionReference want(x.shape, kRoundoffs<T>, x.q.values(), x.k.values(), x.v_values(),
                                x.d.values());
  expect_within(x.o.values(), want.o, "o");
  expect_within(x.lse.values(), want.lse, "lse");
  expect_within(x.dq.values(), want.dq, "dq");
  expect_within(x.dk.values(), want.dk, "dk");
  expect_within(x.dv.values(), want.dv, "dv");
}

const AttentionCase kCases[] = {
    {{1, 1, 64}, {0, 1}},       {{1, 1, 128}, {0, 31}},         {{3, 1, 64}, {0, 33}},
    {{6, 3, 128}, {0, 64}},     {{2, 1, 64}, {0, 65}},          {{3, 1, 128}, {0, 130}},
    {{16, 8, 64}, {0, 40}},     {{16, 8, 128}, {0, 1, 34, 36}}, {{3, 1, 64}, {0, 1, 34, 36, 100}},
    {{1, 1, 64}, {0, 70, 200}}, {{4, 4, 64}, {0, 3, 3, 65}},
};
const AttentionCase kRagged{{6, 3, 64}, {0, 1, 34, 36, 100}}, kRagged128{{3, 1, 128}, {0, 33, 35, 99}};

template <class T>
class AttentionEmulated : public ::testing::Test {
 protected:
  AttentionEmulated() { ctx.reserve(std::size_t{1} << 20); }
  ~AttentionEmulated() override { emulation::set_order({}); }
  CudaContext ctx{0};
};
using Elements = ::testing::Types<float, Bf16>;
class ElementNames {
 public:
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, Bf16> ? "Bf16" : "F32";
  }
};
TYPED_TEST_SUITE(AttentionEmulated, Elements, ElementNames);

TYPED_TEST(AttentionEmulated, ForwardAndBackwardStayWithinTheirBounds) {
  for (const AttentionCase& c : kCases) {
    SCOPED_TRACE(cat("H ", c.heads.n_heads, ", K ", c.heads.n_kv_heads, ", D ", c.heads.head_dim, ", T ",
                     c.n_tokens()));
    const Operands<TypeParam> x(this->ctx, c);
    x.run();
    expect_as_reference(x);
  }
}

TYPED_TEST(AttentionEmulated, BitsDoNotDependOnTheOrderOfThreadsNorOnStridesAndAlignment) {
  const std::int64_t unit = 16 / static_cast<std::int64_t>(sizeof(TypeParam));
  for (const AttentionCase& c : {kRagged, kRagged128}) {
    std::optional<std::vector<std::vector<double>>> first;
    const auto same = [&](const Layout& lies) {
      const Operands<TypeParam> x(this->ctx, c, lies);
      x.run();
      EXPECT_TRUE(x.padding_intact());
      if (!first) first = x.results();
      EXPECT_EQ(*first, x.results());
    };
    for (const emulation::Order order : emulation::kOrders) {
      emulation::set_order(order);
      same({});
    }
    same({unit, unit});
    same({1, 1});
    same({0, 1});
    same({unit, 2});
  }
}

TYPED_TEST(AttentionEmulated, ASampleHasTheSameBitsAloneAndBehindOthers) {
  const AttentionCase packed{{6, 3, 64}, {0, 40, 41, 131}}, alone{{6, 3, 64}, {0, 90}};
  const Operands<TypeParam> x(this->ctx, packed);
  Operands<TypeParam> y(this->ctx, alone);
  const auto rows_of = [](const DeviceMatrix<TypeParam>& m) {
    const std::vector<double> all = m.values();
    return std::vector<double>(all.begin() + 41 * m.view().cols, all.end());
  };
  y.qkv.set(rows_of(x.qkv)), y.q.set(rows_of(x.q)), y.k.set(rows_of(x.k)), y.d.set(rows_of(x.d));
  x.run(), y.run();
  EXPECT_EQ(rows_of(x.o), y.o.values());
  EXPECT_EQ(rows_of(x.dq), y.dq.values());
  EXPECT_EQ(rows_of(x.dk), y.dk.values());
  EXPECT_EQ(rows_of(x.dv), y.dv.values());
}

// Scores of about +-80, where exp of a score itself would come near the largest float.
TYPED_TEST(AttentionEmulated, LargeScoresDoNotOverflow) {
  const AttentionCase c{{2, 1, 64}, {0, 70}};
  const Operands<TypeParam> x(this->ctx, c, {}, 10.0);
  x.run();
  const AttentionReference want(c, kRoundoffs<TypeParam>, x.q.values(), x.k.values(), x.v_values(),
                                x.d.values());
  EXPECT_GT(want.greatest_score, 80.0);
  EXPECT_LT(want.least_score, -80.0);
  expect_as_reference(x);
}

TYPED_TEST(AttentionEmulated, LseIsKeptOnlyWhereAskedFor) {
  const Operands<TypeParam> x(this->ctx, kRagged), y(this->ctx, kRagged);
  x.run();
  y.forward(Matrix());
  EXPECT_EQ(x.o.values(), y.o.values());
}

TYPED_TEST(AttentionEmulated, NoTokensIsNoWork) {
  const Operands<TypeParam> x(this->ctx, {{2, 1, 64}, {0}}), y(this->ctx, {{2, 1, 64}, {0, 0}});
  emulation::clear_calls();
  x.run(), y.run();
  EXPECT_EQ(emulation::calls()["cudaLaunchKernelExC"], 0);
}

TYPED_TEST(AttentionEmulated, OtherHeadDimensionsAreRefusedInALine) {
  const Operands<TypeParam> x(this->ctx, {{2, 1, 80}, {0, 3}});
  for (const bool backward : {false, true}) {
    try {
      backward ? x.run() : x.forward(x.lse.view());
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_STREQ(error.what(),
                   "head_dim is 80: attention on GPUs is computed for head_dim 64 and 128 only; train this "
                   "model on CPUs");
    }
  }
}

}  // namespace
}  // namespace tandem::testing
