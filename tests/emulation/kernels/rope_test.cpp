#include "kernels/rope.hpp"

#include "src/mirror/differentiable.hpp"
#include "tests/emulation/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

constexpr float kEps = 1e-6f;
constexpr double kSize = 2e-3;  // of q and k: so small that eps counts

struct Case {
  std::vector<std::int32_t> lengths;  // of the packed samples
  HeadShape heads;
  bool norm;
};
const Case kCases[] = {
    {{}, {2, 1, 64}, true},       {{1}, {1, 1, 2}, true},         {{5, 1, 27}, {3, 1, 6}, true},
    {{4, 3}, {3, 1, 64}, false},  {{5, 1, 2}, {6, 3, 128}, true}, {{3, 2}, {3, 3, 128}, false},
    {{2, 31}, {1, 1, 256}, true}, {{2}, {40, 10, 128}, true},
};

// A case's operands, and what the mirror makes of them.
template <class T>
struct Rope {
  std::int64_t n_tokens = 0;
  std::vector<std::int32_t> position;
  mirror::Matrix qkv, dq, dk, q_norm, k_norm, cos, sin;
  mirror::RopeTable table;  // of the tokens, from the rounded tables

  explicit Rope(const Case& c) {
    for (const std::int32_t length : c.lengths)
      for (std::int32_t p = 0; p < length; ++p) position.push_back(p);
    n_tokens = std::ssize(position);
    qkv = drawn<T>("qkv", n_tokens, c.heads.qkv_cols(), kSize);
    dq = drawn<T>("dq", n_tokens, c.heads.q_cols());
    dk = drawn<T>("dk", n_tokens, c.heads.kv_cols());
    q_norm = drawn<float>("q_norm", 1, c.heads.head_dim);
    k_norm = drawn<float>("k_norm", 1, c.heads.head_dim);
    const std::int64_t half = c.heads.head_dim / 2, positions = 40;
    std::vector<float> cosine(static_cast<std::size_t>(positions * half)), sine(cosine);
    fill_rope_table({cosine.data(), positions, half}, {sine.data(), positions, half},
                    mirror::rope_frequencies(c.heads.head_dim, 10000.0, nullptr));
    cos.resize(positions, half), sin.resize(positions, half);
    std::copy(cosine.begin(), cosine.end(), cos.data());
    std::copy(sine.begin(), sine.end(), sin.data());
    table = {mirror::Matrix(n_tokens, half), mirror::Matrix(n_tokens, half)};
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      table.cos.row(t) = cos.row(position[static_cast<std::size_t>(t)]);
      table.sin.row(t) = sin.row(position[static_cast<std::size_t>(t)]);
    }
  }
};

// What the kernels get of it.
template <class T>
struct RopeOnDevice {
  OnDevice<T> qkv;
  OnDevice<float> q_norm, k_norm, cos, sin;
  DeviceArray<std::int32_t> position;
  RopeInputs in;

  RopeOnDevice(const CudaContext& ctx, const Rope<T>& r, const Case& c, Place place)
      : qkv(ctx, r.qkv, place),
        q_norm(ctx, r.q_norm, {0, place.offset}),
        k_norm(ctx, r.k_norm, {0, place.offset}),
        cos(ctx, r.cos, place),
        sin(ctx, r.sin, place),
        position(ctx, r.position),
        in{{}, {}, kEps, position.span(), cos.cview(), sin.cview(), c.heads} {
    if (c.norm) in.q_norm = q_norm.span(), in.k_norm = k_norm.span();
  }
};

// |x_i cos| + |x_(i+d/2) sin| and the other half's.
mirror::Matrix rotated_size(const mirror::Matrix& x, const mirror::RopeTable& table) {
  const mirror::RopeTable sum{table.cos.cwiseAbs(), table.sin.cwiseAbs()};
  return mirror::rope(x.cwiseAbs(), sum).cwiseMax(mirror::rope(x.cwiseAbs(), sum, true));
}

// A lane's pairs, two products each, then log2(32) additions.
template <class T>
constexpr int kSum = 2 * kUnit<T> + 2 + 5;
// The mean, + eps, half of all by the root; the root and the quotient.
template <class T>
constexpr double kRstd = (kSum<T> + 3) / 2.0 + 2;

// One side's result and its derivative by the mirror, with their sizes.
struct Side {
  mirror::Matrix y, y_size, dx, dx_size;

  Side(const mirror::Matrix& input, const mirror::Matrix& g, const mirror::Matrix& norm,
       const mirror::RopeTable& table, bool with_norm, std::int64_t d) {
    const std::int64_t n = input.rows(), cols = input.cols(), rows = n * cols / d;
    mirror::Tape tape;
    const mirror::Var x = tape.variable(input);
    const double eps = static_cast<double>(kEps);
    const mirror::Var normed =
        with_norm ? mirror::reshape(mirror::rms_norm(mirror::reshape(x, rows, d), norm.row(0), eps), n, cols)
                  : x;
    const mirror::Var out = mirror::rope(normed, table);
    tape.backward(out, g);
    y = out.value();
    y_size = rotated_size(normed.value(), table);
    dx = tape.gradient(x);
    dx_size = rotated_size(g, table);
    if (!with_norm) return;
    // |r w g| + |x| r^3 mean |w g x|
    mirror::Matrix heads = input;
    heads.resize(rows, d), dx_size.resize(rows, d);  // the same elements
    const mirror::Column r =
        1 / (heads.rowwise().squaredNorm().array() / static_cast<double>(d) + eps).sqrt();
    const mirror::Matrix gw = (dx_size.array().rowwise() * norm.row(0).array().abs()).matrix();
    const mirror::Column mean = gw.cwiseProduct(heads.cwiseAbs()).rowwise().sum() / static_cast<double>(d);
    const mirror::Column along = (r.array().cube() * mean.array()).matrix();
    dx_size = ((gw.array().colwise() * r.array()) + (heads.array().abs().colwise() * along.array())).matrix();
    dx_size.resize(n, cols);
  }
};

template <class T>
class EmulatedRope : public ::testing::Test {};
TYPED_TEST_SUITE(EmulatedRope, Formats, FormatNames);

TYPED_TEST(EmulatedRope, MatchesTheMirrorForwardAndBackward) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const Case& c : kCases) {
    const Rope<T> r(c);
    const std::int64_t d = c.heads.head_dim, q_cols = c.heads.q_cols(), kv_cols = c.heads.kv_cols();
    SCOPED_TRACE(cat(r.n_tokens, " tokens, heads ", c.heads.n_heads, " and ", c.heads.n_kv_heads, " of ", d));
    const auto forward = [&](bool query) {
      return same_everywhere([&, query](Place place) {
        RopeOnDevice<T> own(ctx, r, c, place);
        OnDevice<T> q(ctx, r.n_tokens, q_cols, place), k(ctx, r.n_tokens, kv_cols, place);
        rope_forward(ctx, q.view(), k.view(), own.qkv.cview(), own.in);
        return query ? q.elements() : k.elements();
      });
    };
    const std::vector<T> dqkv = same_everywhere([&](Place place) {
      RopeOnDevice<T> own(ctx, r, c, place);
      OnDevice<T> dq(ctx, r.dq, place), dk(ctx, r.dk, place), result(ctx, r.n_tokens, r.qkv.cols(), place);
      rope_backward(ctx, result.view(), dq.cview(), dk.cview(), own.qkv.cview(), own.in);
      return result.elements();
    });
    const auto columns_of = [&](std::int64_t first, std::int64_t count) {
      std::vector<T> part;
      for (std::int64_t t = 0; t < r.n_tokens; ++t)
        for (std::int64_t i = first; i < first + count; ++i)
          part.push_back(dqkv[static_cast<std::size_t>(t * r.qkv.cols() + i)]);
      return part;
    };
    const Side q(r.qkv.leftCols(q_cols), r.dq, r.q_norm, r.table, c.norm, d);
    const Side k(r.qkv.middleCols(q_cols, kv_cols), r.dk, r.k_norm, r.table, c.norm, d);
    // A product and an addition; before them the norm, or behind them its derivative (the projection: rstd
    // three times, its sum with two products a term, four more; then a product and a difference).
    const double there = 2 + (c.norm ? kRstd<T> + 2 : 0),
                 back = 2 + (c.norm ? 3 * kRstd<T> + kSum<T> + 8 : 0);
    expect_within(forward(true), q.y, q.y_size, there, "q");
    expect_within(forward(false), k.y, k.y_size, there, "k");
    expect_within(columns_of(0, q_cols), q.dx, q.dx_size, back, "dq");
    expect_within(columns_of(q_cols, kv_cols), k.dx, k.dx_size, back, "dk");
    // The value columns are not touched.
    const std::vector<T> values = columns_of(q_cols + kv_cols, kv_cols);
    std::vector<T> untouched(values.size());
    std::memset(static_cast<void*>(untouched.data()), 0xFF, untouched.size() * sizeof(T));
    EXPECT_TRUE(same_bytes(values, untouched));
  }
}

TYPED_TEST(EmulatedRope, BackwardMayOverwriteTheProjections) {
  using T = TypeParam;
  const CudaContext ctx(0);
  const Case c = {{3, 2}, {3, 1, 128}, true};
  const Rope<T> r(c);
  RopeOnDevice<T> own(ctx, r, c, {});
  OnDevice<T> dq(ctx, r.dq), dk(ctx, r.dk), apart(ctx, r.qkv);
  rope_backward(ctx, apart.view(), dq.cview(), dk.cview(), own.qkv.cview(), own.in);
  rope_backward(ctx, own.qkv.view(), dq.cview(), dk.cview(), own.qkv.cview(), own.in);
  EXPECT_TRUE(same_bytes(apart.elements(), own.qkv.elements()));
}

TYPED_TEST(EmulatedRope, KeepsANaNInItsHead) {
  using T = TypeParam;
  const CudaContext ctx(0);
  const Case c = {{2}, {2, 1, 64}, true};
  Rope<T> r(c);
  r.qkv(1, 64 + 5) = std::numeric_limits<double>::quiet_NaN();
  RopeOnDevice<T> own(ctx, r, c, {});
  OnDevice<T> q(ctx, 2, 128), k(ctx, 2, 64);
  rope_forward(ctx, q.view(), k.view(), own.qkv.cview(), own.in);
  const std::vector<T> values = q.elements();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(value_of(values[i])), i / 64 == 3) << i;
  for (const T value : k.elements()) EXPECT_FALSE(std::isnan(value_of(value)));
}

}  // namespace
}  // namespace tandem
