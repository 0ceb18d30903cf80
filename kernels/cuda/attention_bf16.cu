// Attention in bfloat16 on tensor cores (mma.sync m16n8k16), softmax and sums in float32.
//
// A warp computes 16 or 32 rows of a product and keeps them in registers: the weights it gets from scores
// are, rounded to bfloat16, the left operand of the next product where they are. The query heads of a group
// read the same keys; forward and dq count rows as token * group + head, so that a block's keys serve all of
// them.
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ptx.hpp"

namespace tandem::cuda::attention {

namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Rows of a tile lie at 2 * kDim bytes; pieces of 16 bytes trade places by the row's last three bits, so that
// eight rows of one column lie in different banks.
template <int kDim>
TANDEM_DEVICE Bf16* piece(Bf16* tile, int row, int at) {
  return tile + row * kDim + ((at ^ (row & 7)) << 3);
}

// Where row r of a tile is in a matrix.
struct Spot {
  int row, col;
};

// Tokens `row`, `row` + 1, ... of one head.
struct OneHead {
  int row, col;
  TANDEM_DEVICE Spot operator()(int r) const { return {row + r, col}; }
};

// Rows first, first + 1, ... of token * group + head, of the heads from `col`.
template <int kDim>
struct Grouped {
  int begin, col;  // the sample's first token
  int first, group;
  TANDEM_DEVICE Spot operator()(int r) const {
    const int token = (first + r) / group;
    return {begin + token, col + (first + r - token * group) * kDim};
  }
};

// Begins to copy kRows rows, zeros beyond n_valid, as part of the group of copies that the caller closes.
template <int kDim, bool kAligned, int kRows, class Place>
TANDEM_DEVICE void load_tile(Bf16* tile, const Rows<const Bf16>& m, const Place& place, int n_valid) {
  constexpr int kPieces = kDim / 8, kStep = kThreads / kPieces;
  const int at = thread_x() % kPieces;
  TANDEM_UNROLL_BY(4)
  for (int r = thread_x() / kPieces; r < kRows; r += kStep) {
    const bool valid = r < n_valid;
    const Spot spot = valid ? place(r) : Spot{0, 0};
    const Bf16* from = m.at(spot.row, spot.col + 8 * at);
    Bf16* to = piece<kDim>(tile, r, at);
    if constexpr (kAligned) {
      cp_async_16(to, from, valid);
    } else {
      TANDEM_UNROLL_BY(1)
      for (int e = 0; e < 8; ++e) to[e] = valid ? from[e] : Bf16{0};
    }
  }
}

// s = a b^T over kDim: a 16 kM rows from `a_row` of a tile, b 8 kN rows of another. Here and below element
// [m][n] is a 16x8 product's share of a lane (ptx.hpp).
template <int kDim, int kM, int kN>
TANDEM_DEVICE void multiply_rows(float (&s)[kM][kN][4], const Bf16* a, int a_row, const Bf16* b) {
  TANDEM_UNROLL
  for (int m = 0; m < kM; ++m) {
    TANDEM_UNROLL
    for (int n = 0; n < kN; ++n) {
      TANDEM_UNROLL
      for (int e = 0; e < 4; ++e) s[m][n][e] = 0.0f;
    }
  }
  // The row that a lane gives and, xor 16 k, where in it: piece() with what is known of the row's last bits.
  const int l = lane() & 31;
  a += (a_row + (l & 15)) * kDim, b += ((l >> 4) * 8 + (l & 7)) * kDim;
  const int a_at = ((l >> 4) ^ (l & 7)) << 3, b_at = ((l >> 3 & 1) ^ (l & 7)) << 3;
  TANDEM_UNROLL
  for (int k = 0; k < kDim / 16; ++k) {
    std::uint32_t x[kM][4];
    TANDEM_UNROLL
    for (int m = 0; m < kM; ++m)
      ldmatrix_x4(x[m], a + (a_at ^ (16 * k & 48)) + (16 * k & 64) + 16 * m * kDim);
    TANDEM_UNROLL
    for (int n = 0; n < kN; n += 2) {
      std::uint32_t y[4];
      ldmatrix_x4(y, b + (b_at ^ (16 * k & 48)) + (16 * k & 64) + 8 * n * kDim);
      TANDEM_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma_m16n8k16_bf16(s[m][n], x[m], y[0], y[1]);
        mma_m16n8k16_bf16(s[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// Pairs of weights rounded to bfloat16, [m][n][upper or lower 8 rows], from a product's shares.
template <int kM, int kN>
struct Weights {
  std::uint32_t word[kM][kN][2];
};

// sum += w b: w 16 kM by 8 kN, b 8 kN rows of kDim.
template <int kDim, int kM, int kN>
TANDEM_DEVICE void add_weighted_rows(float (&sum)[kM][kDim / 8][4], const Weights<kM, kN>& w, const Bf16* b) {
  const int l = lane() & 31, b_at = ((l >> 4) ^ (l & 7)) << 3;
  b += (l & 15) * kDim;
  TANDEM_UNROLL
  for (int k = 0; k < kN; k += 2) {
    TANDEM_UNROLL
    for (int n = 0; n < kDim / 8; n += 2) {
      std::uint32_t y[4];
      ldmatrix_x4_trans(y, b + (b_at ^ (8 * n & 48)) + (8 * n & 64) + 8 * k * kDim);
      TANDEM_UNROLL
      for (int m = 0; m < kM; ++m) {
        const std::uint32_t x[4] = {w.word[m][k][0], w.word[m][k][1], w.word[m][k + 1][0],
                                    w.word[m][k + 1][1]};
        mma_m16n8k16_bf16(sum[m][n], x, y[0], y[1]);
        mma_m16n8k16_bf16(sum[m][n + 1], x, y[2], y[3]);
      }
    }
  }
}

// sum times factor[m][upper or lower 8 rows], rounded, to the matrix: through the warp's own rows of a tile
// that is no longer used, for stores of 16 bytes. (What ldmatrix has read it has read for all lanes.)
template <int kDim, bool kAligned, int kM, class Place>
TANDEM_DEVICE void store_rows(const Rows<Bf16>& m, const Place& place, int n_valid, Bf16* tile, int a_row,
                              const float (&sum)[kM][kDim / 8][4], const float (&factor)[kM][2]) {
  constexpr int kPieces = kDim / 8;
  warp_order();  // other lanes may still read the tile
  TANDEM_UNROLL
  for (int i = 0; i < kM; ++i) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = a_row + 16 * i + 8 * half + (lane() >> 2);
      TANDEM_UNROLL
      for (int n = 0; n < kPieces; ++n) {
        const std::uint32_t word =
            pack_rounded(sum[i][n][2 * half] * factor[i][half], sum[i][n][2 * half + 1] * factor[i][half]);
        *reinterpret_cast<std::uint32_t*>(piece<kDim>(tile, r, n) + 2 * (lane() & 3)) = word;
      }
    }
  }
  warp_barrier();
  for (int i = lane(); i < 16 * kM * kPieces; i += kWarp) {
    const int r = a_row + i / kPieces, at = i % kPieces;
    if (r >= n_valid) continue;
    const Spot spot = place(r);
    Bf16* to = m.at(spot.row, spot.col + 8 * at);
    if constexpr (kAligned) {
      store16(to, load16(piece<kDim>(tile, r, at)));
    } else {
      const Bf16* from = piece<kDim>(tile, r, at);
      TANDEM_UNROLL_BY(1)
      for (int e = 0; e < 8; ++e) to[e] = from[e];
    }
  }
}

// ---- forward ----

constexpr int kM = 2;                    // 16-row products of a warp
constexpr int kRows = kWarps * 16 * kM;  // rows of a block, token * group + head
static_assert(kRows == kThreads);
constexpr int kKeys = 64;

template <int kDim>
struct ForwardTiles {
  alignas(16) Bf16 q[kRows * kDim];
  alignas(16) Bf16 k[kKeys * kDim];
  alignas(16) Bf16 v[kKeys * kDim];
  int query[kRows];  // of the sample
};

// The sum, or largest, over the four lanes that share a row.
TANDEM_DEVICE float row_max(float x) {
  x = fmaxf(x, shuffle_xor(x, 1));
  return fmaxf(x, shuffle_xor(x, 2));
}
TANDEM_DEVICE float row_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}

template <int kDim, bool kAligned>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_forward_bf16(ForwardOperands<Bf16> x) {
  auto& tile = block_shared<ForwardTiles<kDim>>();
  const Work work = heaviest_first(x.n_kv_heads);
  const int group = x.group;
  const Share share = find_share(x.samples, work.index, group, kRows);
  if (share.length == 0) return;
  const int kv_col = work.head * kDim;
  const Grouped<kDim> place{share.begin, kv_col * group, share.first, group};
  const int n_rows = min_of(kRows, share.length * group - share.first);
  const int n_keys = (share.first + n_rows - 1) / group + 1;  // that the last row sees
  const float scale = x.scale * kLog2E;                       // weights are powers of two of scaled scores

  load_tile<kDim, kAligned, kRows>(tile.q, x.q, place, n_rows);
  load_tile<kDim, kAligned, kKeys>(tile.k, x.k, OneHead{share.begin, kv_col}, n_keys);
  cp_async_commit();
  tile.query[thread_x()] = (share.first + thread_x()) / group;

  const int row = warp() * 16 * kM;  // the warp's first
  float most[kM][2], total[kM][2];
  float sum[kM][kDim / 8][4] = {};
  TANDEM_UNROLL
  for (int m = 0; m < kM; ++m) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      most[m][half] = kMinusInfinity;
      total[m][half] = 0.0f;
    }
  }
  const int first_query = (share.first + row) / group, last_query = (share.first + row + 16 * kM - 1) / group;

  for (int k0 = 0; k0 < n_keys; k0 += kKeys) {
    const bool seen = k0 <= last_query;  // by any row of the warp
    cp_async_wait<0>();
    barrier();  // keys are there; the values before have been used
    load_tile<kDim, kAligned, kKeys>(tile.v, x.v, OneHead{share.begin + k0, kv_col}, n_keys - k0);
    cp_async_commit();
    Weights<kM, kKeys / 8> p;
    if (seen) {
      float s[kM][kKeys / 8][4];
      multiply_rows<kDim>(s, tile.q, row, tile.k);
      if (k0 + kKeys - 1 > first_query) {
        TANDEM_UNROLL
        for (int m = 0; m < kM; ++m) {
          TANDEM_UNROLL
          for (int e = 0; e < 4; ++e) {
            const int query = tile.query[row + 16 * m + 8 * (e / 2) + (lane() >> 2)];
            TANDEM_UNROLL
            for (int n = 0; n < kKeys / 8; ++n)
              if (k0 + 8 * n + 2 * ((lane() & 3)) + e % 2 > query) s[m][n][e] = kMinusInfinity;
          }
        }
      }
      TANDEM_UNROLL
      for (int m = 0; m < kM; ++m) {
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          float top = most[m][half];
          TANDEM_UNROLL
          for (int n = 0; n < kKeys / 8; ++n)
            top = fmaxf(fmaxf(top, s[m][n][2 * half]), s[m][n][2 * half + 1]);
          top = row_max(top);
          const float shift = top * scale, correction = exp2_approx(fma_f32(most[m][half], scale, -shift));
          most[m][half] = top;
          total[m][half] *= correction;
          if (correction != 1.0f) {
            TANDEM_UNROLL
            for (int n = 0; n < kDim / 8; ++n) {
              sum[m][n][2 * half] *= correction;
              sum[m][n][2 * half + 1] *= correction;
            }
          }
          TANDEM_UNROLL
          for (int n = 0; n < kKeys / 8; ++n) {
            TANDEM_UNROLL
            for (int e = 2 * half; e < 2 * half + 2; ++e) {
              s[m][n][e] = exp2_approx(fma_f32(s[m][n][e], scale, -shift));
              total[m][half] += s[m][n][e];
            }
            p.word[m][n][half] = pack_rounded(s[m][n][2 * half], s[m][n][2 * half + 1]);
          }
        }
      }
    }
    cp_async_wait<0>();
    barrier();  // values are there; the keys have been used
    if (k0 + kKeys < n_keys)
      load_tile<kDim, kAligned, kKeys>(tile.k, x.k, OneHead{share.begin + k0 + kKeys, kv_col},
                                       n_keys - k0 - kKeys);
    cp_async_commit();
    if (seen) add_weighted_rows<kDim>(sum, p, tile.v);
  }

  float factor[kM][2];
  TANDEM_UNROLL
  for (int m = 0; m < kM; ++m) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float all = row_sum(total[m][half]);
      factor[m][half] = 1.0f / all;
      const int r = row + 16 * m + 8 * half + (lane() >> 2);
      if (x.lse && (lane() & 3) == 0 && r < n_rows) {
        const int query = tile.query[r], head = work.head * group + share.first + r - query * group;
        // The shift as it was subtracted.
        x.lse[head * x.lse_stride + share.begin + query] = most[m][half] * scale * kLn2 + log_f32(all);
      }
    }
  }
  store_rows<kDim, kAligned>(x.o, place, n_rows, tile.q, row, sum, factor);
}

// ---- backward ----

constexpr int kKeyRows = kWarps * 16;  // keys of a block
constexpr int kQueries = 32;           // queries of a tile

template <int kDim>
struct KvTiles {
  alignas(16) Bf16 k[kKeyRows * kDim];
  alignas(16) Bf16 v[kKeyRows * kDim];
  alignas(16) Bf16 q[2][kQueries * kDim];
  alignas(16) Bf16 d[2][kQueries * kDim];
  float lse[2][kQueries], delta[2][kQueries];
};

// dk, dv of a tile of keys: over the query heads that read them, and those queries that see them, in order.
// Scores lie here with keys as rows.
template <int kDim, bool kAligned>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_backward_kv_bf16(BackwardOperands<Bf16> x) {
  auto& tile = block_shared<KvTiles<kDim>>();
  const Work work = in_order(x.n_kv_heads);
  const Share share = find_share(x.samples, work.index, 1, kKeyRows);
  if (share.length == 0) return;
  const int group = x.group, n_keys = min_of(kKeyRows, share.length - share.first);
  const OneHead place{share.begin + share.first, work.head * kDim};
  const float scale = x.scale * kLog2E;

  const auto load = [&](int stage, int head, int q0) {
    const OneHead from{share.begin + q0, head * kDim};
    const int n_queries = min_of(kQueries, share.length - q0);
    load_tile<kDim, kAligned, kQueries>(tile.q[stage], x.q, from, n_queries);
    load_tile<kDim, kAligned, kQueries>(tile.d[stage], x.d, from, n_queries);
    if (thread_x() < kQueries) {
      const int r = thread_x();
      const bool valid = r < n_queries;
      const std::int64_t t = from.row + (valid ? r : 0);
      cp_async_4(&tile.lse[stage][r], x.lse + head * x.lse_stride + t, valid);
      cp_async_4(&tile.delta[stage][r], x.delta + head * x.delta_stride + t, valid);
    }
  };

  load_tile<kDim, kAligned, kKeyRows>(tile.k, x.k, place, n_keys);
  load_tile<kDim, kAligned, kKeyRows>(tile.v, x.v, place, n_keys);
  load(0, work.head * group, share.first);
  cp_async_commit();

  const int row = warp() * 16;
  float dk[1][kDim / 8][4] = {}, dv[1][kDim / 8][4] = {};
  int stage = 0;
  for (int head = work.head * group; head < (work.head + 1) * group; ++head)
    for (int q0 = share.first; q0 < share.length; q0 += kQueries, stage ^= 1) {
      cp_async_wait<0>();
      barrier();  // this tile is there; the one before has been used
      if (q0 + kQueries < share.length)
        load(stage ^ 1, head, q0 + kQueries);
      else if (head + 1 < (work.head + 1) * group)
        load(stage ^ 1, head + 1, share.first);
      cp_async_commit();
      if (q0 + kQueries <= share.first + row) continue;  // no query of the tile sees the warp's keys
      float s[1][kQueries / 8][4], grad[1][kQueries / 8][4];
      multiply_rows<kDim>(s, tile.k, row, tile.q[stage]);
      multiply_rows<kDim>(grad, tile.v, row, tile.d[stage]);
      Weights<1, kQueries / 8> p, ds;
      const bool masked = q0 < share.first + row + 15;
      // A query beyond the sample is a row of zeros, its lse and delta too: it adds nothing.
      TANDEM_UNROLL
      for (int n = 0; n < kQueries / 8; ++n) {
        const int at = 8 * n + 2 * (lane() & 3);  // the lane's two queries
        const float shift[2] = {tile.lse[stage][at] * kLog2E, tile.lse[stage][at + 1] * kLog2E};
        const float delta[2] = {tile.delta[stage][at], tile.delta[stage][at + 1]};
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int key = share.first + row + 8 * half + (lane() >> 2);
          float weight[2], gradient[2];
          TANDEM_UNROLL
          for (int e = 0; e < 2; ++e) {
            const bool visible = !masked || key <= q0 + at + e;
            weight[e] = visible ? exp2_approx(fma_f32(s[0][n][2 * half + e], scale, -shift[e])) : 0.0f;
            gradient[e] = weight[e] * (grad[0][n][2 * half + e] - delta[e]);
          }
          p.word[0][n][half] = pack_rounded(weight[0], weight[1]);
          ds.word[0][n][half] = pack_rounded(gradient[0], gradient[1]);
        }
      }
      add_weighted_rows<kDim>(dv, p, tile.d[stage]);
      add_weighted_rows<kDim>(dk, ds, tile.q[stage]);
    }
  const float ones[1][2] = {{1.0f, 1.0f}}, scales[1][2] = {{x.scale, x.scale}};
  store_rows<kDim, kAligned>(x.dv, place, n_keys, tile.v, row, dv, ones);
  store_rows<kDim, kAligned>(x.dk, place, n_keys, tile.k, row, dk, scales);
}

constexpr int kSeenKeys = 32;  // keys of a tile

template <int kDim>
struct QTiles {
  alignas(16) Bf16 q[kRows * kDim];
  alignas(16) Bf16 d[kRows * kDim];
  alignas(16) Bf16 k[2][kSeenKeys * kDim];
  alignas(16) Bf16 v[2][kSeenKeys * kDim];
  float lse[kRows], delta[kRows];
  int query[kRows];  // of the sample
  Share share;       // kept here while registers are short
};

// dq of a tile of rows (token * group + head): over the keys that they see, in order.
template <int kDim, bool kAligned>
TANDEM_KERNEL_BOUNDS(kThreads, 2)
attention_backward_q_bf16(BackwardOperands<Bf16> x) {
  auto& tile = block_shared<QTiles<kDim>>();
  const Work work = heaviest_first(x.n_kv_heads);
  const int group = x.group;
  const Share share = find_share(x.samples, work.index, group, kRows);
  if (share.length == 0) return;
  const int kv_col = work.head * kDim;
  const Grouped<kDim> place{share.begin, kv_col * group, share.first, group};
  const int n_rows = min_of(kRows, share.length * group - share.first);
  const int n_keys = (share.first + n_rows - 1) / group + 1;
  const float scale = x.scale * kLog2E;

  const auto load_keys = [&](int stage, int k0) {
    if (k0 >= n_keys) return;
    load_tile<kDim, kAligned, kSeenKeys>(tile.k[stage], x.k, OneHead{share.begin + k0, kv_col}, n_keys - k0);
    load_tile<kDim, kAligned, kSeenKeys>(tile.v[stage], x.v, OneHead{share.begin + k0, kv_col}, n_keys - k0);
  };
  load_tile<kDim, kAligned, kRows>(tile.q, x.q, place, n_rows);
  load_tile<kDim, kAligned, kRows>(tile.d, x.d, place, n_rows);
  {
    const int r = thread_x(), query = (share.first + r) / group;
    const bool valid = r < n_rows;
    const std::int64_t head = valid ? work.head * group + share.first + r - query * group : 0,
                       t = valid ? share.begin + query : 0;
    tile.query[r] = query;
    if (r == 0) tile.share = share;
    cp_async_4(&tile.lse[r], x.lse + head * x.lse_stride + t, valid);
    cp_async_4(&tile.delta[r], x.delta + head * x.delta_stride + t, valid);
  }
  load_keys(0, 0);
  cp_async_commit();

  const int row = warp() * 16 * kM;
  const int first_query = (share.first + row) / group, last_query = (share.first + row + 16 * kM - 1) / group;

  float dq[kM][kDim / 8][4] = {};
  int stage = 0;
  for (int k0 = 0; k0 < n_keys; k0 += kSeenKeys, stage ^= 1) {
    cp_async_wait<0>();
    barrier();  // this tile is there; the one before has been used
    load_keys(stage ^ 1, k0 + kSeenKeys);
    cp_async_commit();
    if (k0 > last_query) continue;
    float s[kM][kSeenKeys / 8][4], grad[kM][kSeenKeys / 8][4];
    multiply_rows<kDim>(s, tile.q, row, tile.k[stage]);
    multiply_rows<kDim>(grad, tile.d, row, tile.v[stage]);
    Weights<kM, kSeenKeys / 8> ds;
    const bool masked = k0 + kSeenKeys - 1 > first_query;
    TANDEM_UNROLL
    for (int m = 0; m < kM; ++m) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int r = row + 16 * m + 8 * half + (lane() >> 2);
        const int last_key = masked ? tile.query[r] : n_keys;
        const float shift = tile.lse[r] * kLog2E, delta = tile.delta[r];
        TANDEM_UNROLL
        for (int n = 0; n < kSeenKeys / 8; ++n) {
          TANDEM_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const bool visible = k0 + 8 * n + 2 * ((lane() & 3)) + e % 2 <= last_key;
            const float p = visible ? exp2_approx(fma_f32(s[m][n][e], scale, -shift)) : 0.0f;
            grad[m][n][e] = p * (grad[m][n][e] - delta);
          }
          ds.word[m][n][half] = pack_rounded(grad[m][n][2 * half], grad[m][n][2 * half + 1]);
        }
      }
    }
    add_weighted_rows<kDim>(dq, ds, tile.k[stage]);
  }
  float scales[kM][2];
  TANDEM_UNROLL
  for (int m = 0; m < kM; ++m) scales[m][0] = scales[m][1] = x.scale;
  const Share again = tile.share;
  store_rows<kDim, kAligned>(x.dq, Grouped<kDim>{again.begin, work.head * kDim * group, again.first, group},
                             min_of(kRows, again.length * group - again.first), tile.q, row, dq, scales);
}

template <int kDim, bool kAligned>
void run_forward(const CudaContext& ctx, const ForwardOperands<Bf16>& x, std::int64_t n_tokens) {
  const int group = x.group;
  launch(ctx, "attention_forward", attention_forward_bf16<kDim, kAligned>,
         {blocks_bound(n_tokens, x.samples.count, group, kRows) * x.n_kv_heads}, kThreads,
         sizeof(ForwardTiles<kDim>), x);
}

template <int kDim, bool kAligned>
void run_backward(const CudaContext& ctx, const BackwardOperands<Bf16>& x, std::int64_t n_tokens) {
  const int group = x.group;
  launch(ctx, "attention_backward_kv", attention_backward_kv_bf16<kDim, kAligned>,
         {blocks_bound(n_tokens, x.samples.count, 1, kKeyRows) * x.n_kv_heads}, kThreads,
         sizeof(KvTiles<kDim>), x);
  launch(ctx, "attention_backward_q", attention_backward_q_bf16<kDim, kAligned>,
         {blocks_bound(n_tokens, x.samples.count, group, kRows) * x.n_kv_heads}, kThreads,
         sizeof(QTiles<kDim>), x);
}

}  // namespace

void forward(const CudaContext& ctx, const ForwardOperands<Bf16>& x, std::int64_t n_tokens, int head_dim) {
  const bool aligned = x.o.aligned && x.q.aligned && x.k.aligned && x.v.aligned;
  if (head_dim == 64)
    aligned ? run_forward<64, true>(ctx, x, n_tokens) : run_forward<64, false>(ctx, x, n_tokens);
  else
    aligned ? run_forward<128, true>(ctx, x, n_tokens) : run_forward<128, false>(ctx, x, n_tokens);
}

void backward(const CudaContext& ctx, const BackwardOperands<Bf16>& x, std::int64_t n_tokens, int head_dim) {
  const bool aligned = x.dq.aligned && x.dk.aligned && x.dv.aligned && x.d.aligned && x.q.aligned &&
                       x.k.aligned && x.v.aligned;
  if (head_dim == 64)
    aligned ? run_backward<64, true>(ctx, x, n_tokens) : run_backward<64, false>(ctx, x, n_tokens);
  else
    aligned ? run_backward<128, true>(ctx, x, n_tokens) : run_backward<128, false>(ctx, x, n_tokens);
}

}  // namespace tandem::cuda::attention
