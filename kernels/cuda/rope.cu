// A warp a head of a token: its norm and its rotation touch nothing else. A lane holds pairs (i, i + D/2) of
// neighbouring i.
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/rope.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = 2;  // neighbouring pairs a lane takes at a time
constexpr int kSteps = static_cast<int>(kMaxHeadDim / 2 / (kWarp * kN));  // and how often, at most
constexpr int kWarps = 8;

struct Tables {
  const float *q_norm, *k_norm;  // null: no norm
  float eps;
  const std::int32_t* position;
  ConstMatrix cos, sin;
  HeadShape heads;
};

// The pairs of one head that a lane holds.
struct Pairs {
  float low[kSteps][kN], high[kSteps][kN];
};

template <class T>
TANDEM_DEVICE void load_pairs(Pairs& p, const T* head, int half) {
  TANDEM_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    const int i = (s * kWarp + lane()) * kN;
    load(p.low[s], head + i, half - i);
    load(p.high[s], head + half + i, half - i);
  }
}

template <class T>
TANDEM_DEVICE void store_pairs(T* head, const Pairs& p, int half) {
  TANDEM_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    const int i = (s * kWarp + lane()) * kN;
    store(head + i, p.low[s], half - i);
    store(head + half + i, p.high[s], half - i);
  }
}

// y = rotation of x by +-angle
template <bool kBack>
TANDEM_DEVICE void rotate(Pairs& p, const float* cos, const float* sin, int half) {
  TANDEM_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    const int i = (s * kWarp + lane()) * kN;
    float c[kN], n[kN];
    load(c, cos + i, half - i);
    load(n, sin + i, half - i);
    TANDEM_UNROLL
    for (int j = 0; j < kN; ++j) {
      const float low = p.low[s][j], high = p.high[s][j], sine = kBack ? -n[j] : n[j];
      p.low[s][j] = low * c[j] - high * sine;
      p.high[s][j] = high * c[j] + low * sine;
    }
  }
}

// Sum of the head's f(low) + f(high), the same in every lane.
template <class Term>
TANDEM_DEVICE float head_sum(const Term& term) {
  float sum = 0.0f;
  TANDEM_UNROLL
  for (int s = 0; s < kSteps; ++s) TANDEM_UNROLL
  for (int j = 0; j < kN; ++j) sum += term(s, j);
  return warp_sum(sum);
}

TANDEM_DEVICE float rstd_of(const Pairs& x, int dim, float eps) {
  const float squares =
      head_sum([&](int s, int j) { return x.low[s][j] * x.low[s][j] + x.high[s][j] * x.high[s][j]; });
  return 1.0f / sqrt_f32(squares / static_cast<float>(dim) + eps);
}

// Which head of which token this warp takes.
struct Place {
  std::int64_t token, head;
  bool query, inside;
};

TANDEM_DEVICE Place place(std::int64_t n_tokens, const HeadShape& heads) {
  const std::int64_t of_token = heads.n_heads + heads.n_kv_heads,
                     at = static_cast<std::int64_t>(block_x()) * kWarps + warp();
  const std::int64_t token = at / of_token, head = at % of_token;
  return {token, head, head < heads.n_heads, token < n_tokens};
}

template <class T>
TANDEM_KERNEL rope_kernel(MatrixView<T> q, MatrixView<T> k, MatrixView<const T> qkv, Tables in) {
  const Place at = place(qkv.rows, in.heads);
  if (!at.inside) return;
  const int dim = static_cast<int>(in.heads.head_dim), half = dim / 2;
  const float* norm = at.query ? in.q_norm : in.k_norm;
  Pairs x;
  load_pairs(x, qkv.row(at.token) + at.head * dim, half);
  if (norm != nullptr) {
    const float rstd = rstd_of(x, dim, in.eps);
    Pairs w;
    load_pairs(w, norm, half);
    TANDEM_UNROLL
    for (int s = 0; s < kSteps; ++s) TANDEM_UNROLL
    for (int j = 0; j < kN; ++j) {
      x.low[s][j] = w.low[s][j] * (x.low[s][j] * rstd);
      x.high[s][j] = w.high[s][j] * (x.high[s][j] * rstd);
    }
  }
  const std::int32_t position = in.position[at.token];
  rotate<false>(x, in.cos.row(position), in.sin.row(position), half);
  T* out = at.query ? q.row(at.token) + at.head * dim : k.row(at.token) + (at.head - in.heads.n_heads) * dim;
  store_pairs(out, x, half);
}

template <class T>
TANDEM_KERNEL rope_backward_kernel(MatrixView<T> dqkv, MatrixView<const T> dq, MatrixView<const T> dk,
                                   MatrixView<const T> qkv, Tables in) {
  const Place at = place(qkv.rows, in.heads);
  if (!at.inside) return;
  const int dim = static_cast<int>(in.heads.head_dim), half = dim / 2;
  const float* norm = at.query ? in.q_norm : in.k_norm;
  Pairs g;
  load_pairs(
      g, at.query ? dq.row(at.token) + at.head * dim : dk.row(at.token) + (at.head - in.heads.n_heads) * dim,
      half);
  const std::int32_t position = in.position[at.token];
  rotate<true>(g, in.cos.row(position), in.sin.row(position), half);
  if (norm != nullptr) {
    Pairs x, w;
    load_pairs(x, qkv.row(at.token) + at.head * dim, half);
    load_pairs(w, norm, half);
    const float rstd = rstd_of(x, dim, in.eps);
    const float projection = head_sum([&](int s, int j) {
      return w.low[s][j] * g.low[s][j] * x.low[s][j] + w.high[s][j] * g.high[s][j] * x.high[s][j];
    });
    const float along = rstd * rstd * rstd * projection / static_cast<float>(dim);
    TANDEM_UNROLL
    for (int s = 0; s < kSteps; ++s) TANDEM_UNROLL
    for (int j = 0; j < kN; ++j) {
      g.low[s][j] = rstd * (w.low[s][j] * g.low[s][j]) - along * x.low[s][j];
      g.high[s][j] = rstd * (w.high[s][j] * g.high[s][j]) - along * x.high[s][j];
    }
  }
  store_pairs(dqkv.row(at.token) + at.head * dim, g, half);
}

Tables tables(const RopeInputs& in) {
  return {in.q_norm.empty() ? nullptr : in.q_norm.data(),
          in.k_norm.empty() ? nullptr : in.k_norm.data(),
          in.eps,
          in.position.data(),
          in.cos,
          in.sin,
          in.heads};
}

std::int64_t blocks(std::int64_t n_tokens, const HeadShape& heads) {
  return blocks_for(n_tokens * (heads.n_heads + heads.n_kv_heads), kWarps);
}

template <class T>
void forward(const CudaContext& ctx, MatrixView<T> q, MatrixView<T> k, MatrixView<const T> qkv,
             const RopeInputs& in) {
  launch(ctx, "rope_forward", rope_kernel<T>, {blocks(qkv.rows, in.heads)}, kWarp * kWarps, 0, q, k, qkv,
         tables(in));
}

template <class T>
void backward(const CudaContext& ctx, MatrixView<T> dqkv, MatrixView<const T> dq, MatrixView<const T> dk,
              MatrixView<const T> qkv, const RopeInputs& in) {
  launch(ctx, "rope_backward", rope_backward_kernel<T>, {blocks(qkv.rows, in.heads)}, kWarp * kWarps, 0, dqkv,
         dq, dk, qkv, tables(in));
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
