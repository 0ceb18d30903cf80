// The kernels that work row by row, against plain loops in float64: where there is no library of matrices.
// The bounds are those of tests/emulation/kernels, where the same kernels are held to the mirror.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/kernels/bit_contract.hpp"

namespace tandem::testing {
namespace {

constexpr float kEps = 1e-6f;
constexpr double kSize = 2e-3;     // of what is normed: so small that eps counts
constexpr int kNormThreads = 128;  // a block's, as kernels/cuda/rms_norm.cu has it
constexpr int kExp = 4;            // exp is at most two units in the last place off, four roundings
constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{0, 8},   {3, 0},    {1, 1},   {2, 31},
                                                            {33, 33}, {2, 1024}, {1, 4099}};

struct Values {
  std::int64_t rows, cols;
  std::vector<double> all;

  Values(std::int64_t rows_, std::int64_t cols_)
      : rows(rows_), cols(cols_), all(static_cast<std::size_t>(rows * cols)) {}
  Values(std::int64_t rows_, std::int64_t cols_, std::vector<double> values)
      : rows(rows_), cols(cols_), all(std::move(values)) {}
  double& operator()(std::int64_t r, std::int64_t c) { return all[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const {
    return all[static_cast<std::size_t>(r * cols + c)];
  }
};

template <class T>
Values drawn(const char* name, std::int64_t rows, std::int64_t cols, double size = 1.0) {
  return {rows, cols, drawn_values<T>(name, rows * cols, size)};
}

template <class T>
struct OnDevice : DeviceMatrix<T> {
  OnDevice(const CudaContext& ctx, const Values& x, Place place = {}) : OnDevice(ctx, x.rows, x.cols, place) {
    this->set(x.all);
  }
  OnDevice(const CudaContext& ctx, std::int64_t rows, std::int64_t cols, Place place = {})
      : DeviceMatrix<T>(ctx, rows, cols, place.padding, place.offset) {}
  std::vector<T> elements() const {
    EXPECT_TRUE(this->padding_intact());
    return DeviceMatrix<T>::elements();
  }
};

// What should come out, and by element what roundings are relative to.
struct Wanted {
  Values value, size;
  Wanted(std::int64_t rows, std::int64_t cols) : value(rows, cols), size(rows, cols) {}
  void set(std::int64_t r, std::int64_t c, double v, double s) { value(r, c) = v, size(r, c) = s; }
  void set(std::int64_t r, std::int64_t c, double v) { set(r, c, v, std::abs(v)); }
};

// |got - want| <= gamma(roundings) size, and then rounded to T. NaN anywhere fails.
template <class T>
void expect_within(const std::vector<T>& got, const Wanted& want, double roundings, const char* what) {
  ASSERT_EQ(got.size(), want.value.all.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double is = static_cast<double>(value_of(got[i])), should = want.value.all[i];
    const double computed = gamma(roundings) * want.size.all[i];
    ASSERT_LE(std::abs(is - should), computed + kStored<T> * (std::abs(should) + computed))
        << what << ", element " << i << " of " << want.value.rows << " x " << want.value.cols << ": " << is
        << ", should be " << should;
  }
}

template <class T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> all;
  for (const float value : values) all.push_back(element_of<T>(static_cast<double>(value)));
  return all;
}
std::vector<float> floats(const Values& x) { return {x.all.begin(), x.all.end()}; }

// 1 / sqrt(mean x^2 + eps)
double reciprocal_norm(const double* x, std::int64_t n) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  return 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(kEps));
}

// Derivative of w x r by x along g, and its terms' sizes where |g| <= size.
void norm_backward(double* dx, double* dx_size, const double* x, const double* w, const double* g,
                   const double* size, std::int64_t n) {
  const double r = reciprocal_norm(x, n);
  double mean = 0.0, mean_size = 0.0;
  for (std::int64_t i = 0; i < n; ++i)
    mean += w[i] * g[i] * x[i], mean_size += std::abs(w[i] * x[i]) * size[i];
  mean /= static_cast<double>(n), mean_size /= static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = r * (w[i] * g[i] - x[i] * r * r * mean);
    dx_size[i] = r * (std::abs(w[i]) * size[i] + std::abs(x[i]) * r * r * mean_size);
  }
}

std::vector<double> magnitudes(const double* x, std::int64_t n) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(std::abs(x[i]));
  return all;
}

template <class T>
class RowKernels : public ::testing::Test {
 protected:
  CudaContext ctx{0};
};
TYPED_TEST_SUITE(RowKernels, Formats, FormatNames);

double rstd_roundings(std::int64_t cols) { return (additions(cols, kNormThreads) + 3) / 2.0 + 2; }

TYPED_TEST(RowKernels, RmsNorm) {
  using T = TypeParam;
  for (const auto& [rows, cols] : kSizes) {
    const Values x = drawn<float>("x", rows, cols, kSize), w = drawn<float>("w", 1, cols),
                 dy = drawn<T>("dy", rows, cols), old = drawn<float>("dx", rows, cols);
    const std::vector<T> y = same_everywhere([&](Place place) {
      OnDevice<float> in(this->ctx, x, place), weight(this->ctx, w, {0, place.offset});
      OnDevice<T> out(this->ctx, x.rows, x.cols, place);
      rms_norm_forward(this->ctx, out.view(), in.cview(), weight.span(), kEps);
      return out.elements();
    });
    Wanted forward(rows, cols), backward(rows, cols), added(rows, cols);
    for (std::int64_t t = 0; t < rows && cols > 0; ++t) {
      const double* const row = &x.all[static_cast<std::size_t>(t * cols)];
      const double* const g = &dy.all[static_cast<std::size_t>(t * cols)];
      const double r = reciprocal_norm(row, cols);
      for (std::int64_t c = 0; c < cols; ++c) forward.set(t, c, w(0, c) * row[c] * r);
      norm_backward(&backward.value(t, 0), &backward.size(t, 0), row, w.all.data(), g,
                    magnitudes(g, cols).data(), cols);
      for (std::int64_t c = 0; c < cols; ++c)
        added.set(t, c, backward.value(t, c) + old(t, c), backward.size(t, c) + std::abs(old(t, c)));
    }
    expect_within(y, forward, rstd_roundings(cols) + 2, "y");
    if (cols == 0) continue;
    // rstd three times, the projection's sum with two products a term, four more; a product, two additions.
    const double roundings = 3 * rstd_roundings(cols) + additions(cols, kNormThreads) + 2 + 4 + 3;
    for (const bool accumulate : {false, true}) {
      const std::vector<float> dx = same_everywhere([&](Place place) {
        OnDevice<float> in(this->ctx, x, place), weight(this->ctx, w, {0, place.offset});
        OnDevice<T> gradient(this->ctx, dy, place);
        OnDevice<float> result = accumulate ? OnDevice<float>(this->ctx, old, place)
                                            : OnDevice<float>(this->ctx, x.rows, x.cols, place);
        rms_norm_backward(this->ctx, result.view(), gradient.cview(), in.cview(), weight.span(), kEps,
                          accumulate);
        return result.elements();
      });
      expect_within(dx, accumulate ? added : backward, roundings, accumulate ? "dx +=" : "dx");
    }
  }
}

TYPED_TEST(RowKernels, Swiglu) {
  using T = TypeParam;
  for (const auto& [rows, n] : kSizes) {
    const Values gu = drawn<T>("gu", rows, 2 * n, 4.0), dh = drawn<T>("dh", rows, n);
    Wanted forward(rows, n), backward(rows, 2 * n);
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = gu(t, i), u = gu(t, n + i), d = dh(t, i), s = 1.0 / (1.0 + std::exp(-g));
        forward.set(t, i, g * s * u);
        backward.set(t, i, d * u * s * (1.0 + g * (1.0 - s)), std::abs(d * u * s) * (1.0 + std::abs(g)));
        backward.set(t, n + i, d * g * s);
      }
    const std::vector<T> h = same_everywhere([&](Place place) {
      OnDevice<T> in(this->ctx, gu, place), out(this->ctx, dh.rows, dh.cols, place);
      swiglu_forward(this->ctx, out.view(), in.cview());
      return out.elements();
    });
    const std::vector<T> dgu = same_everywhere([&](Place place) {
      OnDevice<T> in(this->ctx, gu, place), gradient(this->ctx, dh, place);
      swiglu_backward(this->ctx, in.view(), gradient.cview(), in.cview());  // in place
      return in.elements();
    });
    expect_within(h, forward, kExp + 3, "h");
    expect_within(dgu, backward, 2 * (kExp + 2) + 3 + 4, "dgu");
  }
}

TYPED_TEST(RowKernels, Bias) {
  using T = TypeParam;
  for (const auto& [rows, cols] : kSizes) {
    const Values y = drawn<T>("y", rows, cols), b = drawn<float>("b", 1, cols);
    Wanted want(rows, cols);
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t c = 0; c < cols; ++c) want.set(t, c, y(t, c) + b(0, c));
    const std::vector<T> got = same_everywhere([&](Place place) {
      OnDevice<T> own(this->ctx, y, place);
      OnDevice<float> bias(this->ctx, b, {0, place.offset});
      add_bias(this->ctx, own.view(), bias.span());
      return own.elements();
    });
    expect_within(got, want, 1, "y + b");
  }
}

TYPED_TEST(RowKernels, CrossEntropy) {
  using T = TypeParam;
  // The last: a whole vocabulary, more than is kept of a row in shared memory.
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{0, 8}, {1, 1}, {3, 31}, {33, 33}, {2, 5003}, {1, 151937}}) {
    const Values x = drawn<float>("logits", rows, cols, 8.0);
    std::vector<std::int32_t> target;
    for (std::int64_t n = 0; n < rows; ++n)
      target.push_back(static_cast<std::int32_t>(splitmix64(static_cast<std::uint64_t>(n)) %
                                                 static_cast<std::uint64_t>(cols)));
    Wanted nll(rows, 1), gradient(rows, cols);
    // Roundings that a term of the sum passes through: tests/emulation/kernels/cross_entropy_test.cpp.
    const std::int64_t units = (cols + 3) / 4,
                       threads = std::clamp<std::int64_t>((units + 31) / 32 * 32, 32, 1024);
    const double through = 4 + static_cast<double>((units + threads - 1) / threads) * 9 + 10 * 6;
    for (std::int64_t n = 0; n < rows; ++n) {
      double top = -HUGE_VAL, sum = 0.0, of_sum = 0.0;
      for (std::int64_t v = 0; v < cols; ++v) top = std::max(top, x(n, v));
      for (std::int64_t v = 0; v < cols; ++v) sum += std::exp(x(n, v) - top);
      const double log_sum = std::log(sum);
      const std::int64_t right = target[static_cast<std::size_t>(n)];
      for (std::int64_t v = 0; v < cols; ++v)
        of_sum += (top - x(n, v) + through) * std::exp(x(n, v) - top - log_sum);
      const double loss = log_sum + top - x(n, right);
      nll.set(n, 0, loss, of_sum + 4 * std::abs(log_sum) + std::abs(log_sum + top) + std::abs(loss));
      for (std::int64_t v = 0; v < cols; ++v) {
        const double p = std::exp(x(n, v) - top - log_sum), size = p * (top - x(n, v) + of_sum + 6);
        gradient.set(n, v, p - (v == right), size + (v == right ? 1.0 - p : 0.0));
      }
    }
    DeviceArray<std::int32_t> own_target(this->ctx, target);
    std::vector<T> slopes;
    const std::int64_t n_rows = rows, n_cols = cols;
    const std::vector<float> losses = same_everywhere([&](Place place) {
      OnDevice<float> logits(this->ctx, x, place), out(this->ctx, 1, n_rows);
      OnDevice<T> own(this->ctx, n_rows, n_cols, place);
      cross_entropy(this->ctx, out.span(), logits.view(), own_target.span(), own.view());
      const std::vector<T> here = own.elements();
      if (slopes.empty()) slopes = here;
      EXPECT_TRUE(same_bytes(slopes, here));
      return out.elements();
    });
    expect_within(losses, nll, 1, "nll");
    expect_within(slopes, gradient, 1, "dlogits");
  }
}

struct RopeCase {
  std::vector<std::int32_t> lengths;  // of the packed samples
  HeadShape heads;
  bool norm;
};
const RopeCase kRopeCases[] = {
    {{}, {2, 1, 64}, true},       {{1}, {1, 1, 2}, true},         {{5, 1, 27}, {3, 1, 6}, true},
    {{4, 3}, {3, 1, 64}, false},  {{5, 1, 2}, {6, 3, 128}, true}, {{31, 1, 33}, {3, 1, 128}, true},
    {{2, 31}, {1, 1, 256}, true},
};

// A lane's pairs, two products each, then log2(32) additions; the mean, + eps, half of all by the root; the
// root and the quotient.
template <class T>
constexpr int kRopeSum = 2 * kUnit<T> + 2 + 5;
template <class T>
constexpr double kRopeRstd = (kRopeSum<T> + 3) / 2.0 + 2;

// Columns [first, first + heads * d) of qkv forward, and back along g.
struct RopeReference {
  Wanted y, dx;
  RopeReference(const Values& qkv, std::int64_t first, const Values& g, const Values& norm, bool with_norm,
                const Values& cos, const Values& sin, const std::vector<std::int32_t>& position)
      : y(g.rows, g.cols), dx(g.rows, g.cols) {
    const std::int64_t d = norm.cols, half = d / 2;
    std::vector<double> x(static_cast<std::size_t>(d)), n(x), back(x), back_size(x);
    for (std::int64_t t = 0; t < g.rows; ++t)
      for (std::int64_t h = 0; h < g.cols / d; ++h) {
        for (std::int64_t i = 0; i < d; ++i) x[static_cast<std::size_t>(i)] = qkv(t, first + h * d + i);
        const double r = with_norm ? reciprocal_norm(x.data(), d) : 1.0;
        for (std::int64_t i = 0; i < d; ++i) {
          const auto at = static_cast<std::size_t>(i);
          n[at] = with_norm ? norm(0, i) * x[at] * r : x[at];
        }
        const std::int64_t p = position[static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < half; ++i) {
          const double c = cos(p, i), s = sin(p, i);
          const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(i + half);
          const std::int64_t low = h * d + i, high = low + half;
          const double g_low = g(t, low), g_high = g(t, high);
          y.set(t, low, n[a] * c - n[b] * s, std::abs(n[a] * c) + std::abs(n[b] * s));
          y.set(t, high, n[b] * c + n[a] * s, std::abs(n[b] * c) + std::abs(n[a] * s));
          back[a] = g_low * c + g_high * s, back[b] = g_high * c - g_low * s;
          back_size[a] = std::abs(g_low * c) + std::abs(g_high * s);
          back_size[b] = std::abs(g_high * c) + std::abs(g_low * s);
        }
        if (with_norm) {
          norm_backward(&dx.value(t, h * d), &dx.size(t, h * d), x.data(), norm.all.data(), back.data(),
                        back_size.data(), d);
        } else {
          for (std::int64_t i = 0; i < d; ++i)
            dx.set(t, h * d + i, back[static_cast<std::size_t>(i)], back_size[static_cast<std::size_t>(i)]);
        }
      }
  }
};

TYPED_TEST(RowKernels, Rope) {
  using T = TypeParam;
  for (const RopeCase& c : kRopeCases) {
    std::vector<std::int32_t> position;
    for (const std::int32_t length : c.lengths)
      for (std::int32_t p = 0; p < length; ++p) position.push_back(p);
    const auto n = static_cast<std::int64_t>(position.size());
    const std::int64_t d = c.heads.head_dim, half = d / 2, positions = 40, q_cols = c.heads.q_cols(),
                       kv_cols = c.heads.kv_cols();
    SCOPED_TRACE(cat(n, " tokens, heads ", c.heads.n_heads, " and ", c.heads.n_kv_heads, " of ", d));
    std::vector<double> frequency;
    for (std::int64_t i = 0; i < half; ++i)
      frequency.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(d)));
    std::vector<float> cosines(static_cast<std::size_t>(positions * half)), sines(cosines);
    fill_rope_table({cosines.data(), positions, half}, {sines.data(), positions, half}, frequency);
    const Values cos(positions, half, {cosines.begin(), cosines.end()}),
        sin(positions, half, {sines.begin(), sines.end()});
    const Values qkv = drawn<T>("qkv", n, c.heads.qkv_cols(), kSize), dq = drawn<T>("dq", n, q_cols),
                 dk = drawn<T>("dk", n, kv_cols), q_norm = drawn<float>("q_norm", 1, d),
                 k_norm = drawn<float>("k_norm", 1, d);

    // forward's q and k, then backward's dqkv
    const auto run = [&](Place place) {
      OnDevice<T> own(this->ctx, qkv, place), q(this->ctx, n, q_cols, place), k(this->ctx, n, kv_cols, place),
          own_dq(this->ctx, dq, place), own_dk(this->ctx, dk, place), back(this->ctx, n, qkv.cols, place);
      OnDevice<float> q_weight(this->ctx, q_norm, {0, place.offset}),
          k_weight(this->ctx, k_norm, {0, place.offset}), own_cos(this->ctx, cos, place),
          own_sin(this->ctx, sin, place);
      DeviceArray<std::int32_t> own_position(this->ctx, position);
      RopeInputs in{{}, {}, kEps, own_position.span(), own_cos.cview(), own_sin.cview(), c.heads};
      if (c.norm) in.q_norm = q_weight.span(), in.k_norm = k_weight.span();
      rope_forward(this->ctx, q.view(), k.view(), own.cview(), in);
      rope_backward(this->ctx, back.view(), own_dq.cview(), own_dk.cview(), own.cview(), in);
      return joined(joined(q.elements(), k.elements()), back.elements());
    };
    const std::vector<T> all = same_everywhere(run);
    const auto part = [&](std::int64_t begin, std::int64_t cols) {
      const auto at = all.begin() + n * begin;
      return std::vector<T>(at, at + n * cols);
    };
    const auto columns_back = [&](std::int64_t first, std::int64_t cols) {
      std::vector<T> out;
      for (std::int64_t t = 0; t < n; ++t) {
        const auto at = all.begin() + n * (q_cols + kv_cols) + t * qkv.cols + first;
        out.insert(out.end(), at, at + cols);
      }
      return out;
    };
    const RopeReference q(qkv, 0, dq, q_norm, c.norm, cos, sin, position);
    const RopeReference k(qkv, q_cols, dk, k_norm, c.norm, cos, sin, position);
    const double there = 2 + (c.norm ? kRopeRstd<T> + 2 : 0),
                 back = 2 + (c.norm ? 3 * kRopeRstd<T> + kRopeSum<T> + 8 : 0);
    expect_within(part(0, q_cols), q.y, there, "q");
    expect_within(part(q_cols, kv_cols), k.y, there, "k");
    expect_within(columns_back(0, q_cols), q.dx, back, "dq");
    expect_within(columns_back(q_cols, kv_cols), k.dx, back, "dk");
    for (const T value : columns_back(q_cols + kv_cols, kv_cols))
      EXPECT_TRUE(std::isnan(value_of(value))) << "the value columns are not touched";
  }
}

TYPED_TEST(RowKernels, DropoutHasTheBitsOfTheCpu) {
  using T = TypeParam;
  const CpuContext cpu(1);
  for (const auto& [rows, cols] : kSizes)
    for (const double p : {0.0, 0.1, 0.5}) {
      const Values x = drawn<T>("x", rows, cols), old = drawn<T>("dx", rows, cols);
      std::vector<std::uint64_t> key;
      std::vector<std::int32_t> position;
      for (std::int64_t t = 0; t < rows; ++t) {
        key.push_back(splitmix64(std::uint64_t{9} << 32 | static_cast<std::uint64_t>(t / 7)));
        position.push_back(static_cast<std::int32_t>(t % 7));
      }
      const DropoutMask mask{RandomStream(5, "dropout.a"), p, key, position};
      std::vector<float> in = floats(x), y(in), dx = floats(old);
      dropout(cpu, {y.data(), rows, cols}, ConstMatrix(in.data(), rows, cols), mask);
      dropout_backward(cpu, {dx.data(), rows, cols}, ConstMatrix(in.data(), rows, cols), mask);
      DeviceArray<std::uint64_t> own_key(this->ctx, key);
      DeviceArray<std::int32_t> own_position(this->ctx, position);
      const DropoutMask on_device{mask.stream, p, own_key.span(), own_position.span()};
      const std::vector<T> got = same_everywhere([&](Place place) {
        OnDevice<T> own(this->ctx, x, place), out(this->ctx, x.rows, x.cols, place),
            gradient(this->ctx, old, place);
        dropout(this->ctx, out.view(), own.cview(), on_device);
        dropout_backward(this->ctx, gradient.view(), own.cview(), on_device);
        return joined(out.elements(), gradient.elements());
      });
      EXPECT_TRUE(same_bytes(got, joined(stored<T>(y), stored<T>(dx)))) << rows << " x " << cols;
    }
}

TYPED_TEST(RowKernels, GatherAndScatterCopyRows) {
  using T = TypeParam;
  for (const auto& [rows, cols] : kSizes) {
    const Values table = drawn<T>("table", 50, cols), y = drawn<float>("y", rows, cols);
    std::vector<std::int32_t> index;
    for (std::int64_t t = 0; t < rows; ++t) index.push_back(static_cast<std::int32_t>((t * 7 + 49) % 50));
    DeviceArray<std::int32_t> own_index(this->ctx, index);
    const std::vector<float> got = same_everywhere([&](Place place) {
      OnDevice<T> own(this->ctx, table, place);
      OnDevice<float> gathered(this->ctx, y.rows, y.cols, place), in(this->ctx, y, place),
          scattered(this->ctx, 50, y.cols, place);
      gather_rows(this->ctx, gathered.view(), own.cview(), own_index.span());
      scatter_rows(this->ctx, scattered.view(), in.cview(), own_index.span());
      return joined(gathered.elements(), scattered.elements());
    });
    Values want(rows + 50, cols);
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::int64_t row = index[static_cast<std::size_t>(t)];
        want(t, c) = table(row, c);
        want(rows + row, c) = y(t, c);
      }
    EXPECT_TRUE(same_bytes(got, floats(want))) << rows << " x " << cols;
  }
}

}  // namespace
}  // namespace tandem::testing
