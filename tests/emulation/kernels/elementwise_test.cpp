// SwiGLU, bias, dropout, rows by index.
#include "kernels/bias.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/swiglu.hpp"
#include "src/mirror/differentiable.hpp"
#include "tests/emulation/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{0, 8},   {3, 0},   {1, 1},   {2, 31},
                                                            {33, 33}, {2, 512}, {1, 1027}};

template <class T>
class EmulatedElementwise : public ::testing::Test {};
TYPED_TEST_SUITE(EmulatedElementwise, Formats, FormatNames);

// exp is at most two units in the last place off, four roundings.
constexpr int kExp = 4;

TYPED_TEST(EmulatedElementwise, SwigluMatchesTheMirror) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, n] : kSizes) {
    const mirror::Matrix gu = drawn<T>("gu", rows, 2 * n, 4.0), dh = drawn<T>("dh", rows, n);
    mirror::Tape tape;
    const mirror::Var gate = tape.variable(gu.leftCols(n)), up = tape.variable(gu.rightCols(n));
    const mirror::Var out = mirror::multiply(mirror::silu(gate), up);
    tape.backward(out, dh);
    const std::vector<T> h = same_everywhere([&](Place place) {
      OnDevice<T> in(ctx, gu, place), result(ctx, rows, n, place);
      swiglu_forward(ctx, result.view(), in.cview());
      return result.elements();
    });
    // exp, an addition, a quotient, a product.
    expect_within(h, out.value(), out.value().cwiseAbs(), kExp + 3, "h");

    const std::vector<T> dgu = same_everywhere([&](Place place) {
      OnDevice<T> in(ctx, gu, place), gradient(ctx, dh, place);  // in place
      swiglu_backward(ctx, in.view(), gradient.cview(), in.cview());
      return in.elements();
    });
    mirror::Matrix want(rows, 2 * n), size(rows, 2 * n);
    want << tape.gradient(gate), tape.gradient(up);
    const auto g = gate.value().array();
    const mirror::Matrix s = (1 / (1 + (-g).exp())).matrix();
    size << ((dh.array() * up.value().array() * s.array()).abs() * (1 + g.abs())).matrix(),
        tape.gradient(up).cwiseAbs();
    // s has exp, an addition, a quotient. 1 + g (1 - s) is wrong by s's error times |g| and three roundings
    // of terms below 1 + |g|; then s itself, d u and three products.
    constexpr int kSigmoid = kExp + 2;
    expect_within(dgu, want, size, 2 * kSigmoid + 3 + 4, cat("dgu of ", rows, " x ", n));
  }
}

TYPED_TEST(EmulatedElementwise, SwigluTreatsTheEnds) {
  using T = TypeParam;
  const CudaContext ctx(0);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  mirror::Matrix gu(1, 10);
  gu << 200, -200, 0, nan, inf, 1, 1, 1, 1, 1;
  OnDevice<T> in(ctx, gu), h(ctx, 1, 5);
  swiglu_forward(ctx, h.view(), in.cview());
  const std::vector<T> values = h.elements();
  EXPECT_EQ(value_of(values[0]), 200);
  EXPECT_EQ(value_of(values[1]), 0);
  EXPECT_EQ(value_of(values[2]), 0);
  EXPECT_TRUE(std::isnan(value_of(values[3])));
  EXPECT_EQ(value_of(values[4]), inf);
}

TYPED_TEST(EmulatedElementwise, BiasMatchesTheMirror) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, cols] : kSizes) {
    const mirror::Matrix y = drawn<T>("y", rows, cols), b = drawn<float>("b", 1, cols);
    const std::vector<T> got = same_everywhere([&](Place place) {
      OnDevice<T> own(ctx, y, place);
      OnDevice<float> bias(ctx, b, {0, place.offset});
      add_bias(ctx, own.view(), bias.span());
      return own.elements();
    });
    const mirror::Matrix want = (y.rowwise() + b.row(0)).eval();
    expect_within(got, want, want.cwiseAbs(), 1, "y + b");
  }
}

// The mask's lists on both sides.
struct Mask {
  std::vector<std::uint64_t> key;
  std::vector<std::int32_t> position;
  DeviceArray<std::uint64_t> own_key;
  DeviceArray<std::int32_t> own_position;

  static std::vector<std::uint64_t> keys(std::int64_t rows) {
    std::vector<std::uint64_t> key;
    for (std::int64_t t = 0; t < rows; ++t)
      key.push_back(splitmix64(std::uint64_t{9} << 32 | static_cast<std::uint64_t>(t / 7)));
    return key;
  }
  static std::vector<std::int32_t> positions(std::int64_t rows) {
    std::vector<std::int32_t> position;
    for (std::int64_t t = 0; t < rows; ++t) position.push_back(static_cast<std::int32_t>(t % 7));
    return position;
  }
  Mask(const CudaContext& ctx, std::int64_t rows)
      : key(keys(rows)), position(positions(rows)), own_key(ctx, key), own_position(ctx, position) {}
  DropoutMask host(double p) const { return {RandomStream(5, "dropout.a"), p, key, position}; }
  DropoutMask device(double p) {
    return {RandomStream(5, "dropout.a"), p, own_key.span(), own_position.span()};
  }
};

std::vector<float> floats(const mirror::Matrix& m) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < m.size(); ++i) result.push_back(static_cast<float>(m.data()[i]));
  return result;
}

template <class T>
std::vector<T> as_stored(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(element_of<T>(static_cast<double>(value)));
  return result;
}

// In float32 on a CPU, then stored as T.
template <class T>
std::vector<T> dropped_on_cpu(const mirror::Matrix& x, const DropoutMask& mask) {
  std::vector<float> in = floats(x), out(in);
  dropout(CpuContext(1), {out.data(), x.rows(), x.cols()}, ConstMatrix(in.data(), x.rows(), x.cols()), mask);
  return as_stored<T>(out);
}
template <class T>
std::vector<T> added_on_cpu(const mirror::Matrix& dx, const mirror::Matrix& dy, const DropoutMask& mask) {
  std::vector<float> in = floats(dy), out = floats(dx);
  dropout_backward(CpuContext(1), {out.data(), dy.rows(), dy.cols()},
                   ConstMatrix(in.data(), dy.rows(), dy.cols()), mask);
  return as_stored<T>(out);
}

TYPED_TEST(EmulatedElementwise, DropoutHasTheBitsOfTheCpu) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, cols] : kSizes)
    for (const double p : {0.0, 0.1, 0.5}) {
      const mirror::Matrix x = drawn<T>("x", rows, cols), old = drawn<T>("dx", rows, cols),
                           old_f32 = drawn<float>("dx32", rows, cols);
      Mask mask(ctx, rows);
      const std::vector<T> y = same_everywhere([&](Place place) {
        OnDevice<T> in(ctx, x, place), out(ctx, rows, cols, place);
        dropout(ctx, out.view(), in.cview(), mask.device(p));
        dropout(ctx, in.view(), in.cview(), mask.device(p));
        const std::vector<T> result = out.elements();
        EXPECT_TRUE(same_bytes(result, in.elements())) << "in place";
        return result;
      });
      EXPECT_TRUE(same_bytes(y, dropped_on_cpu<T>(x, mask.host(p)))) << rows << " x " << cols << ", p " << p;
      const std::vector<T> dx = same_everywhere([&](Place place) {
        OnDevice<T> dy(ctx, x, place), out(ctx, old, place);
        dropout_backward(ctx, out.view(), dy.cview(), mask.device(p));
        return out.elements();
      });
      EXPECT_TRUE(same_bytes(dx, added_on_cpu<T>(old, x, mask.host(p))));
      const std::vector<float> wide = same_everywhere([&](Place place) {
        OnDevice<T> dy(ctx, x, place);
        OnDevice<float> out(ctx, old_f32, place);
        dropout_backward(ctx, out.view(), dy.cview(), mask.device(p));
        return out.elements();
      });
      EXPECT_TRUE(same_bytes(wide, added_on_cpu<float>(old_f32, x, mask.host(p))));
    }
}

// The mask is decided to the last of 53 bits: at p = unit the element is kept, just above it not.
TEST(EmulatedDropout, DrawsTheLineWhereTheSpecDoes) {
  const CudaContext ctx(0);
  Mask mask(ctx, 1);
  std::uint64_t c = 0;  // an element below 1/4, so that doubles lie closer than 2^-53
  while (mask.host(0.0).stream.unit(mask.key[0] + c) >= 0.25) ++c;
  const double unit = mask.host(0.0).stream.unit(mask.key[0] + c);
  const auto cols = static_cast<std::int64_t>(c) + 1;
  OnDevice<float> x(ctx, mirror::Matrix::Ones(1, cols)), at(ctx, 1, cols), above(ctx, 1, cols);
  dropout(ctx, at.view(), x.cview(), mask.device(unit));
  dropout(ctx, above.view(), x.cview(), mask.device(std::nextafter(unit, 1.0)));
  EXPECT_EQ(at.elements().back(), 1.0f / static_cast<float>(1.0 - unit));
  EXPECT_EQ(above.elements().back(), 0.0f);
}

TYPED_TEST(EmulatedElementwise, GatherCopiesRows) {
  using T = TypeParam;
  const CudaContext ctx(0);
  for (const auto& [rows, cols] : kSizes) {
    const mirror::Matrix table = drawn<T>("table", 50, cols);
    std::vector<std::int32_t> index;
    for (std::int64_t t = 0; t < rows; ++t) index.push_back(static_cast<std::int32_t>((t * 7 + 49) % 50));
    DeviceArray<std::int32_t> own_index(ctx, index);
    const std::vector<float> y = same_everywhere([&](Place place) {
      OnDevice<T> own(ctx, table, place);
      OnDevice<float> out(ctx, rows, cols, place);
      gather_rows(ctx, out.view(), own.cview(), own_index.span());
      return out.elements();
    });
    mirror::Matrix want(rows, cols);
    for (std::int64_t t = 0; t < rows; ++t) want.row(t) = table.row(index[static_cast<std::size_t>(t)]);
    EXPECT_TRUE(same_bytes(y, floats(want)));
  }
}

TEST(EmulatedScatter, PutsRowsAndZeroesTheOthers) {
  const CudaContext ctx(0);
  for (const std::int64_t n : {0, 1, 5, 33})
    for (const std::int64_t cols : {1, 31, 64, 1027}) {
      const std::int64_t rows = 40;
      const mirror::Matrix y = drawn<float>("y", n, cols);
      std::vector<std::int32_t> index;
      for (std::int64_t i = 0; i < n; ++i) index.push_back(static_cast<std::int32_t>((i * 7 + 39) % 40));
      DeviceArray<std::int32_t> own_index(ctx, index);
      const std::vector<float> x = same_everywhere([&](Place place) {
        OnDevice<float> in(ctx, y, place), out(ctx, rows, cols, place);
        scatter_rows(ctx, out.view(), in.cview(), own_index.span());
        return out.elements();
      });
      mirror::Matrix want = mirror::Matrix::Zero(rows, cols);
      for (std::int64_t i = 0; i < n; ++i) want.row(index[static_cast<std::size_t>(i)]) = y.row(i);
      EXPECT_TRUE(same_bytes(x, floats(want)));
    }
}

}  // namespace
}  // namespace tandem
