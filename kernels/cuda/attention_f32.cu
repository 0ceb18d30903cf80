// Attention in float32 on CUDA cores: tiles of the operands in shared memory, a thread computes rows
// ty, ty + 16, ... and of them columns tx, tx + 8, ... (ty = thread / 8, tx = thread % 8), so that a warp's
// reads of 16 bytes never meet in a bank.
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ptx.hpp"

namespace tandem::cuda::attention {

namespace {

constexpr int kThreads = 128, kWide = 8, kHigh = 16;
constexpr int kQueries = 64, kKeys = 32;  // tiles of the forward kernel
constexpr int kTile = 32;                 // rows of every tile of the backward kernels

// Distances between rows in shared memory. Four banks further with each row of an operand, eight with each
// row of weights.
template <int kDim>
constexpr int kPitch = kDim + 4;
template <int kCols>
constexpr int kWeightPitch = kCols + 8;

TANDEM_DEVICE int tx() { return thread_x() % kWide; }
TANDEM_DEVICE int ty() { return thread_x() / kWide; }

// Begins to copy kRows rows of one head from row `row`; zeros beyond `n_valid`. Part of the group of copies
// that the caller closes.
template <int kDim, int kRows>
TANDEM_DEVICE void load_rows(float* tile, const Rows<const float>& m, std::int64_t row, std::int64_t col,
                             int n_valid) {
  constexpr int kPieces = kDim / 4;
  for (int i = thread_x(); i < kRows * kPieces; i += kThreads) {
    const int r = i / kPieces, c = i % kPieces * 4;
    float* to = tile + r * kPitch<kDim> + c;
    const bool valid = r < n_valid;
    const float* from = valid ? m.at(row + r, col + c) : m.data;
    if (m.aligned) {
      cp_async_16(to, from, valid);
    } else {
      TANDEM_UNROLL
      for (int e = 0; e < 4; ++e) to[e] = valid ? from[e] : 0.0f;
    }
  }
}

// s(i,j) = sum_d a(ty + 16 i, d) b(tx + 8 j, d)
template <int kDim, int kRows, int kCols>
TANDEM_DEVICE void dot_rows(float (&s)[kRows][kCols], const float* a, const float* b) {
  TANDEM_UNROLL
  for (int i = 0; i < kRows; ++i) {
    TANDEM_UNROLL
    for (int j = 0; j < kCols; ++j) s[i][j] = 0.0f;
  }
  a += ty() * kPitch<kDim>, b += tx() * kPitch<kDim>;
  TANDEM_UNROLL_BY(4)
  for (int d = 0; d < kDim; d += 4) {
    Vec16<float> x[kRows], y[kCols];
    TANDEM_UNROLL
    for (int i = 0; i < kRows; ++i) x[i] = load16(a + i * kHigh * kPitch<kDim> + d);
    TANDEM_UNROLL
    for (int j = 0; j < kCols; ++j) y[j] = load16(b + j * kWide * kPitch<kDim> + d);
    TANDEM_UNROLL
    for (int e = 0; e < 4; ++e) {
      TANDEM_UNROLL
      for (int i = 0; i < kRows; ++i) {
        TANDEM_UNROLL
        for (int j = 0; j < kCols; ++j) s[i][j] = fma_f32(x[i].at[e], y[j].at[e], s[i][j]);
      }
    }
  }
}

// sum(i,:) += sum_n weights(ty + 16 i, n) b(n, :): of the kDim columns, 4 from 4 tx + 32 c, in sum[i][4 c].
template <int kDim, int kInner, int kRows>
TANDEM_DEVICE void add_weighted_rows(float (&sum)[kRows][kDim / kWide], const float* weights,
                                     const float* b) {
  weights += ty() * kWeightPitch<kInner>, b += 4 * tx();
  TANDEM_UNROLL_BY(2)
  for (int n = 0; n < kInner; n += 4) {
    Vec16<float> w[kRows];
    TANDEM_UNROLL
    for (int i = 0; i < kRows; ++i) w[i] = load16(weights + i * kHigh * kWeightPitch<kInner> + n);
    TANDEM_UNROLL
    for (int m = 0; m < 4; ++m) {
      TANDEM_UNROLL
      for (int c = 0; c < kDim / 32; ++c) {
        const Vec16<float> y = load16(b + (n + m) * kPitch<kDim> + 32 * c);
        TANDEM_UNROLL
        for (int i = 0; i < kRows; ++i) {
          TANDEM_UNROLL
          for (int e = 0; e < 4; ++e) sum[i][4 * c + e] = fma_f32(w[i].at[m], y.at[e], sum[i][4 * c + e]);
        }
      }
    }
  }
}

// Rows ty + 16 i below n_valid, times `factor`, to rows row + ty + 16 i of one head.
template <int kDim, int kRows>
TANDEM_DEVICE void store_rows(const Rows<float>& m, std::int64_t row, std::int64_t col, int n_valid,
                              const float (&sum)[kRows][kDim / kWide], const float (&factor)[kRows]) {
  TANDEM_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = ty() + kHigh * i;
    if (r >= n_valid) continue;
    TANDEM_UNROLL
    for (int c = 0; c < kDim / 32; ++c) {
      float* to = m.at(row + r, col + 4 * tx() + 32 * c);
      Vec16<float> out;
      TANDEM_UNROLL
      for (int e = 0; e < 4; ++e) out.at[e] = sum[i][4 * c + e] * factor[i];
      if (m.aligned) {
        store16(to, out);
      } else {
        TANDEM_UNROLL
        for (int e = 0; e < 4; ++e) to[e] = out.at[e];
      }
    }
  }
}

template <int kDim>
struct ForwardTiles {
  alignas(16) float q[kQueries * kPitch<kDim>];
  alignas(16) float k[kKeys * kPitch<kDim>];
  alignas(16) float v[kKeys * kPitch<kDim>];
  alignas(16) float p[kQueries * kWeightPitch<kKeys>];  // each warp's rows are its own
};

// Online softmax of the rows of a thread; its 8 neighbours (tx) have the other columns.
template <int kRows>
struct Softmax {
  float most[kRows], sum[kRows];  // sum: of this thread's columns

  TANDEM_DEVICE Softmax() {
    TANDEM_UNROLL
    for (int i = 0; i < kRows; ++i) {
      most[i] = kMinusInfinity;
      sum[i] = 0.0f;
    }
  }
  // Scores of one row become weights; what was summed before is to be multiplied by the returned factor.
  template <int kCols>
  TANDEM_DEVICE float add(int i, float (&s)[kCols]) {
    float top = most[i];
    TANDEM_UNROLL
    for (int j = 0; j < kCols; ++j) top = fmaxf(top, s[j]);
    for (int mask = kWide / 2; mask > 0; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
    const float correction = exp_f32(most[i] - top);
    most[i] = top;
    sum[i] *= correction;
    TANDEM_UNROLL
    for (int j = 0; j < kCols; ++j) {
      s[j] = exp_f32(s[j] - top);
      sum[i] += s[j];
    }
    return correction;
  }
  TANDEM_DEVICE void gather() {
    TANDEM_UNROLL
    for (int i = 0; i < kRows; ++i) {
      for (int mask = kWide / 2; mask > 0; mask /= 2) sum[i] += shuffle_xor(sum[i], mask);
    }
  }
};

template <int kDim>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_forward_f32(ForwardOperands<float> x) {
  constexpr int kRows = kQueries / kHigh, kCols = kKeys / kWide;
  auto& tile = block_shared<ForwardTiles<kDim>>();
  const Work work = heaviest_first(x.n_heads);
  const Share share = find_share(x.samples, work.index, 1, kQueries);
  if (share.length == 0) return;
  const std::int64_t col = static_cast<std::int64_t>(work.head) * kDim,
                     kv_col = static_cast<std::int64_t>(work.head / x.group) * kDim;
  const int n_queries = min_of(kQueries, share.length - share.first), n_keys = share.first + n_queries;

  load_rows<kDim, kQueries>(tile.q, x.q, share.begin + share.first, col, n_queries);
  load_rows<kDim, kKeys>(tile.k, x.k, share.begin, kv_col, n_keys);
  cp_async_commit();
  float sum[kRows][kDim / kWide] = {};
  Softmax<kRows> softmax;
  for (int k0 = 0; k0 < n_keys; k0 += kKeys) {
    cp_async_wait<0>();
    barrier();  // keys are there; the values before have been used
    load_rows<kDim, kKeys>(tile.v, x.v, share.begin + k0, kv_col, n_keys - k0);
    cp_async_commit();
    float s[kRows][kCols];
    dot_rows<kDim>(s, tile.q, tile.k);
    const bool masked = k0 + kKeys - 1 > share.first;
    TANDEM_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int r = ty() + kHigh * i;
      TANDEM_UNROLL
      for (int j = 0; j < kCols; ++j) {
        const bool visible = !masked || k0 + tx() + kWide * j <= share.first + r;
        s[i][j] = visible ? s[i][j] * x.scale : kMinusInfinity;
      }
      const float correction = softmax.add(i, s[i]);
      TANDEM_UNROLL
      for (int c = 0; c < kDim / kWide; ++c) sum[i][c] *= correction;
      TANDEM_UNROLL
      for (int j = 0; j < kCols; ++j) tile.p[r * kWeightPitch<kKeys> + tx() + kWide * j] = s[i][j];
    }
    cp_async_wait<0>();
    barrier();  // values and weights are there; the keys have been used
    if (k0 + kKeys < n_keys)
      load_rows<kDim, kKeys>(tile.k, x.k, share.begin + k0 + kKeys, kv_col, n_keys - k0 - kKeys);
    cp_async_commit();
    add_weighted_rows<kDim, kKeys>(sum, tile.p, tile.v);
  }
  softmax.gather();
  float factor[kRows];
  TANDEM_UNROLL
  for (int i = 0; i < kRows; ++i) {
    factor[i] = 1.0f / softmax.sum[i];
    const int r = ty() + kHigh * i;
    if (x.lse && tx() == 0 && r < n_queries)
      x.lse[work.head * x.lse_stride + share.begin + share.first + r] =
          softmax.most[i] + log_f32(softmax.sum[i]);
  }
  store_rows<kDim>(x.o, share.begin + share.first, col, n_queries, sum, factor);
}

// Weights and gradients of scores are written and read by the same warp.
template <int kDim>
struct BackwardTiles {
  alignas(16) float q[kTile * kPitch<kDim>];
  alignas(16) float d[kTile * kPitch<kDim>];
  alignas(16) float k[kTile * kPitch<kDim>];
  alignas(16) float v[kTile * kPitch<kDim>];
  alignas(16) float p[kTile * kWeightPitch<kTile>];
  alignas(16) float ds[kTile * kWeightPitch<kTile>];
  float lse[kTile], delta[kTile];
};

constexpr int kTileRows = kTile / kHigh, kTileCols = kTile / kWide;

// dk, dv of a tile of keys: over the query heads that read them, and those queries that see them, in order.
template <int kDim>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_backward_kv_f32(BackwardOperands<float> x) {
  auto& tile = block_shared<BackwardTiles<kDim>>();
  const Work work = in_order(x.n_kv_heads);
  const Share share = find_share(x.samples, work.index, 1, kTile);
  if (share.length == 0) return;
  const int group = x.group, n_keys = min_of(kTile, share.length - share.first);
  const std::int64_t kv_col = static_cast<std::int64_t>(work.head) * kDim;

  load_rows<kDim, kTile>(tile.k, x.k, share.begin + share.first, kv_col, n_keys);
  load_rows<kDim, kTile>(tile.v, x.v, share.begin + share.first, kv_col, n_keys);
  cp_async_commit();
  float dk[kTileRows][kDim / kWide] = {}, dv[kTileRows][kDim / kWide] = {};
  for (int h = work.head * group; h < (work.head + 1) * group; ++h) {
    const std::int64_t col = static_cast<std::int64_t>(h) * kDim;
    for (int q0 = share.first; q0 < share.length; q0 += kTile) {
      const std::int64_t row = share.begin + q0;
      const int n_queries = min_of(kTile, share.length - q0);
      barrier();  // the queries before have been used
      load_rows<kDim, kTile>(tile.q, x.q, row, col, n_queries);
      load_rows<kDim, kTile>(tile.d, x.d, row, col, n_queries);
      cp_async_commit();
      if (thread_x() < kTile) {
        const int r = thread_x();
        const bool valid = r < n_queries;
        tile.lse[r] = valid ? x.lse[h * x.lse_stride + row + r] : 0.0f;
        tile.delta[r] = valid ? x.delta[h * x.delta_stride + row + r] : 0.0f;
      }
      cp_async_wait<0>();
      barrier();
      float s[kTileRows][kTileCols], dp[kTileRows][kTileCols];
      dot_rows<kDim>(s, tile.k, tile.q);
      dot_rows<kDim>(dp, tile.v, tile.d);
      TANDEM_UNROLL
      for (int i = 0; i < kTileRows; ++i) {
        const int key = ty() + kHigh * i;
        TANDEM_UNROLL
        for (int j = 0; j < kTileCols; ++j) {
          const int query = tx() + kWide * j;
          const bool visible = share.first + key <= q0 + query && query < n_queries;
          const float p = visible ? exp_f32(s[i][j] * x.scale - tile.lse[query]) : 0.0f;
          tile.p[key * kWeightPitch<kTile> + query] = p;
          tile.ds[key * kWeightPitch<kTile> + query] = p * (dp[i][j] - tile.delta[query]);
        }
      }
      warp_barrier();
      add_weighted_rows<kDim, kTile>(dv, tile.p, tile.d);
      add_weighted_rows<kDim, kTile>(dk, tile.ds, tile.q);
    }
  }
  const float ones[kTileRows] = {1.0f, 1.0f}, scales[kTileRows] = {x.scale, x.scale};
  store_rows<kDim>(x.dv, share.begin + share.first, kv_col, n_keys, dv, ones);
  store_rows<kDim>(x.dk, share.begin + share.first, kv_col, n_keys, dk, scales);
}

// dq of a tile of queries of one head: over the keys that they see, in order.
template <int kDim>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_backward_q_f32(BackwardOperands<float> x) {
  auto& tile = block_shared<BackwardTiles<kDim>>();
  const Work work = heaviest_first(x.n_heads);
  const Share share = find_share(x.samples, work.index, 1, kTile);
  if (share.length == 0) return;
  const std::int64_t col = static_cast<std::int64_t>(work.head) * kDim,
                     kv_col = static_cast<std::int64_t>(work.head / x.group) * kDim,
                     row = share.begin + share.first;
  const int n_queries = min_of(kTile, share.length - share.first), n_keys = share.first + n_queries;

  load_rows<kDim, kTile>(tile.q, x.q, row, col, n_queries);
  load_rows<kDim, kTile>(tile.d, x.d, row, col, n_queries);
  cp_async_commit();
  float dq[kTileRows][kDim / kWide] = {}, lse[kTileRows], delta[kTileRows];
  TANDEM_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    const int r = ty() + kHigh * i;
    lse[i] = r < n_queries ? x.lse[work.head * x.lse_stride + row + r] : 0.0f;
    delta[i] = r < n_queries ? x.delta[work.head * x.delta_stride + row + r] : 0.0f;
  }
  for (int k0 = 0; k0 < n_keys; k0 += kTile) {
    barrier();  // the keys before have been used
    load_rows<kDim, kTile>(tile.k, x.k, share.begin + k0, kv_col, n_keys - k0);
    load_rows<kDim, kTile>(tile.v, x.v, share.begin + k0, kv_col, n_keys - k0);
    cp_async_commit();
    cp_async_wait<0>();
    barrier();
    float s[kTileRows][kTileCols], dp[kTileRows][kTileCols];
    dot_rows<kDim>(s, tile.q, tile.k);
    dot_rows<kDim>(dp, tile.d, tile.v);
    TANDEM_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      const int query = ty() + kHigh * i;
      TANDEM_UNROLL
      for (int j = 0; j < kTileCols; ++j) {
        const int key = tx() + kWide * j;
        const bool visible = k0 + key <= share.first + query && query < n_queries;
        const float p = visible ? exp_f32(s[i][j] * x.scale - lse[i]) : 0.0f;
        tile.ds[query * kWeightPitch<kTile> + key] = p * (dp[i][j] - delta[i]);
      }
    }
    warp_barrier();
    add_weighted_rows<kDim, kTile>(dq, tile.ds, tile.k);
  }
  const float scales[kTileRows] = {x.scale, x.scale};
  store_rows<kDim>(x.dq, row, col, n_queries, dq, scales);
}

std::int64_t grid_of(const Samples& samples, std::int64_t n_tokens, int per_block, int n_heads) {
  return blocks_bound(n_tokens, samples.count, 1, per_block) * n_heads;
}

template <int kDim>
void run_forward(const CudaContext& ctx, const ForwardOperands<float>& x, std::int64_t n_tokens) {
  launch(ctx, "attention_forward", attention_forward_f32<kDim>,
         {grid_of(x.samples, n_tokens, kQueries, x.n_heads)}, kThreads, sizeof(ForwardTiles<kDim>), x);
}

template <int kDim>
void run_backward(const CudaContext& ctx, const BackwardOperands<float>& x, std::int64_t n_tokens) {
  launch(ctx, "attention_backward_kv", attention_backward_kv_f32<kDim>,
         {grid_of(x.samples, n_tokens, kTile, x.n_kv_heads)}, kThreads, sizeof(BackwardTiles<kDim>), x);
  launch(ctx, "attention_backward_q", attention_backward_q_f32<kDim>,
         {grid_of(x.samples, n_tokens, kTile, x.n_heads)}, kThreads, sizeof(BackwardTiles<kDim>), x);
}

}  // namespace

void forward(const CudaContext& ctx, const ForwardOperands<float>& x, std::int64_t n_tokens, int head_dim) {
  head_dim == 64 ? run_forward<64>(ctx, x, n_tokens) : run_forward<128>(ctx, x, n_tokens);
}

void backward(const CudaContext& ctx, const BackwardOperands<float>& x, std::int64_t n_tokens, int head_dim) {
  head_dim == 64 ? run_backward<64>(ctx, x, n_tokens) : run_backward<128>(ctx, x, n_tokens);
}

}  // namespace tandem::cuda::attention
