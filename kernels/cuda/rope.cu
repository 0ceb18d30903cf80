// A block a token, and of it some neighbouring lanes a head, as many as have something to do: a head's norm
// and rotation touch nothing else. A lane holds pairs (i, i + D/2) of neighbouring i.
#include <algorithm>
#include <bit>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/rope.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kMaxThreads = 256;

struct Tables {
  const float *q_norm, *k_norm;  // null: no norm
  float eps;
  const std::int32_t* position;
  ConstMatrix cos, sin;
  HeadShape heads;
  int lanes;  // of a head: a power of 2
};

// What one lane has to do at a time.
struct Place {
  int head;  // key heads behind the query heads
  bool query;
  int first, count;  // its pairs; none where count <= 0
};

TANDEM_DEVICE int n_heads(const Tables& in) {
  return static_cast<int>(in.heads.n_heads + in.heads.n_kv_heads);
}

template <int kN>
TANDEM_DEVICE Place place(int head, const Tables& in) {
  const int first = thread_x() % in.lanes * kN;
  return {head, head < in.heads.n_heads, first,
          head < n_heads(in) ? static_cast<int>(in.heads.head_dim / 2) - first : 0};
}

// The pairs that a lane holds.
template <int kN>
struct Pairs {
  float low[kN], high[kN];
};

template <int kN, class T>
TANDEM_DEVICE Pairs<kN> load_pairs(const T* head, const Place& at) {
  Pairs<kN> p;
  load(p.low, head + at.first, at.count);
  load(p.high, head + at.first + (at.first + at.count), at.count);
  return p;
}

template <int kN, class T>
TANDEM_DEVICE void store_pairs(T* head, const Pairs<kN>& p, const Place& at) {
  store(head + at.first, p.low, at.count);
  store(head + at.first + (at.first + at.count), p.high, at.count);
}

// By the angle, or back.
template <bool kBack, int kN>
TANDEM_DEVICE void rotate(Pairs<kN>& p, const Tables& in, const Place& at) {
  const std::int32_t position = in.position[block_x()];
  float cos[kN], sin[kN];
  load(cos, in.cos.row(position) + at.first, at.count);
  load(sin, in.sin.row(position) + at.first, at.count);
  TANDEM_UNROLL
  for (int j = 0; j < kN; ++j) {
    const float low = p.low[j], high = p.high[j], sine = kBack ? -sin[j] : sin[j];
    p.low[j] = low * cos[j] - high * sine;
    p.high[j] = high * cos[j] + low * sine;
  }
}

// The sum over a head's lanes, in each of them.
TANDEM_DEVICE float head_sum(float value, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

template <int kN>
TANDEM_DEVICE float rstd_of(const Pairs<kN>& x, const Tables& in) {
  float squares = 0.0f;
  TANDEM_UNROLL
  for (int j = 0; j < kN; ++j) squares += x.low[j] * x.low[j] + x.high[j] * x.high[j];
  return 1.0f / sqrt_f32(head_sum(squares, in.lanes) / static_cast<float>(in.heads.head_dim) + in.eps);
}

template <class T>
TANDEM_KERNEL_BOUNDS(kMaxThreads, 4)
rope_kernel(MatrixView<T> q, MatrixView<T> k, MatrixView<const T> qkv, Tables in) {
  constexpr int kN = kUnit<T>;
  const std::int64_t dim = in.heads.head_dim;
  // All threads go round equally often: a warp's lanes meet in its sums.
  for (int head = 0; head < n_heads(in); head += thread_count() / in.lanes) {
    const Place at = place<kN>(head + thread_x() / in.lanes, in);
    const float* norm = at.query ? in.q_norm : in.k_norm;
    Pairs<kN> x = load_pairs<kN>(qkv.row(block_x()) + at.head * dim, at);
    if (norm != nullptr) {  // both or neither
      const float rstd = rstd_of(x, in);
      const Pairs<kN> w = load_pairs<kN>(norm, at);
      TANDEM_UNROLL
      for (int j = 0; j < kN; ++j) {
        x.low[j] = w.low[j] * (x.low[j] * rstd);
        x.high[j] = w.high[j] * (x.high[j] * rstd);
      }
    }
    rotate<false>(x, in, at);
    store_pairs(
        at.query ? q.row(block_x()) + at.head * dim : k.row(block_x()) + (at.head - in.heads.n_heads) * dim,
        x, at);
  }
}

template <class T>
TANDEM_KERNEL_BOUNDS(kMaxThreads, 4)
rope_backward_kernel(MatrixView<T> dqkv, MatrixView<const T> dq, MatrixView<const T> dk,
                     MatrixView<const T> qkv, Tables in) {
  constexpr int kN = kUnit<T>;
  const std::int64_t dim = in.heads.head_dim;
  for (int head = 0; head < n_heads(in); head += thread_count() / in.lanes) {
    const Place at = place<kN>(head + thread_x() / in.lanes, in);
    const float* norm = at.query ? in.q_norm : in.k_norm;
    Pairs<kN> g = load_pairs<kN>(
        at.query ? dq.row(block_x()) + at.head * dim : dk.row(block_x()) + (at.head - in.heads.n_heads) * dim,
        at);
    rotate<true>(g, in, at);
    if (norm != nullptr) {
      const Pairs<kN> w = load_pairs<kN>(norm, at);
      TANDEM_UNROLL
      for (int j = 0; j < kN; ++j) {
        g.low[j] *= w.low[j];
        g.high[j] *= w.high[j];
      }
      const Pairs<kN> x = load_pairs<kN>(qkv.row(block_x()) + at.head * dim, at);
      const float rstd = rstd_of(x, in);
      float projection = 0.0f;
      TANDEM_UNROLL
      for (int j = 0; j < kN; ++j) projection += g.low[j] * x.low[j] + g.high[j] * x.high[j];
      const float along = rstd * rstd * rstd * head_sum(projection, in.lanes) / static_cast<float>(dim);
      TANDEM_UNROLL
      for (int j = 0; j < kN; ++j) {
        g.low[j] = rstd * g.low[j] - along * x.low[j];
        g.high[j] = rstd * g.high[j] - along * x.high[j];
      }
    }
    store_pairs(dqkv.row(block_x()) + at.head * dim, g, at);
  }
}

// lanes: as many as hold the pairs of a head, each a unit of T.
template <class T>
Tables tables(const RopeInputs& in) {
  const std::int64_t units = blocks_for(in.heads.head_dim / 2, kUnit<T>);
  static_assert(kMaxHeadDim / 2 <= std::int64_t{kWarp} * kUnit<T>);
  return {in.q_norm.empty() ? nullptr : in.q_norm.data(),
          in.k_norm.empty() ? nullptr : in.k_norm.data(),
          in.eps,
          in.position.data(),
          in.cos,
          in.sin,
          in.heads,
          static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(units)))};
}

int threads(const Tables& in) {
  const std::int64_t wanted = (in.heads.n_heads + in.heads.n_kv_heads) * in.lanes;
  return static_cast<int>(std::min<std::int64_t>(kMaxThreads, blocks_for(wanted, kWarp) * kWarp));
}

template <class T>
void forward(const CudaContext& ctx, MatrixView<T> q, MatrixView<T> k, MatrixView<const T> qkv,
             const RopeInputs& inputs) {
  const Tables in = tables<T>(inputs);
  launch(ctx, "rope_forward", rope_kernel<T>, {qkv.rows}, threads(in), 0, q, k, qkv, in);
}

template <class T>
void backward(const CudaContext& ctx, MatrixView<T> dqkv, MatrixView<const T> dq, MatrixView<const T> dk,
              MatrixView<const T> qkv, const RopeInputs& inputs) {
  const Tables in = tables<T>(inputs);
  launch(ctx, "rope_backward", rope_backward_kernel<T>, {qkv.rows}, threads(in), 0, dqkv, dq, dk, qkv, in);
}

}  // namespace

void rope_forward(const CudaContext& ctx, Matrix q, Matrix k, ConstMatrix qkv, const RopeInputs& in) {
  forward(ctx, q, k, qkv, in);
}
void rope_forward(const CudaContext& ctx, Bf16Matrix q, Bf16Matrix k, ConstBf16Matrix qkv,
                  const RopeInputs& in) {
  forward(ctx, q, k, qkv, in);
}
void rope_backward(const CudaContext& ctx, Matrix dqkv, ConstMatrix dq, ConstMatrix dk, ConstMatrix qkv,
                   const RopeInputs& in) {
  backward(ctx, dqkv, dq, dk, qkv, in);
}
void rope_backward(const CudaContext& ctx, Bf16Matrix dqkv, ConstBf16Matrix dq, ConstBf16Matrix dk,
                   ConstBf16Matrix qkv, const RopeInputs& in) {
  backward(ctx, dqkv, dq, dk, qkv, in);
}

}  // namespace tandem
