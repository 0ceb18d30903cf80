#include "kernels/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/vector_math.hpp"
#include "kernels/product.hpp"
#include "src/base/fault.hpp"

namespace tandem {

namespace {

// Scores are computed in blocks of queries by chunks of keys, counted from the sample's first token: the
// order of every sum is fixed by the sample's length alone.
constexpr std::int64_t kQueries = 128, kKeys = 512;
static_assert(2 * kQueries * kKeys <= CpuContext::kScratchFloats);

using cpu::product_single;

// One head's columns of a packed matrix, one sample's rows.
template <class View>
View head_of(View m, std::int64_t head, std::int64_t dim, std::int64_t begin, std::int64_t end) {
  return m.row_range(begin, end).col_range(head * dim, (head + 1) * dim);
}

struct Block {
  std::int64_t q0, q1;  // queries, relative to the sample
  std::int64_t k0, k1;  // keys
  // Keys that query row i of the block may see: the causal mask.
  std::int64_t visible(std::int64_t i) const { return std::min(k1, q0 + i + 1) - k0; }
};

void scale_row(float* x, float factor, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

float row_max(const float* x, std::int64_t n) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// x = exp(x - shift) over the first n of `width`, 0 beyond; returns the sum.
float exp_row(float* x, float shift, std::int64_t n, std::int64_t width) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const float p = cpu::exp_f32(x[i] - shift);
    x[i] = p;
    sum += p;
  }
  std::fill(x + n, x + width, 0.0f);
  return sum;
}

float row_dot(const float* x, const float* y, std::int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// Queries at positions q0, q0+1, ... of one head of one sample, by online softmax over chunks of keys. out,
// q: these queries' rows; k, v: the sample's from its first token; lse: of these queries, or null.
void forward_block(float* scratch, Matrix out, float* lse, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                   std::int64_t q0, float scale) {
  const std::int64_t rows = q.rows, q1 = q0 + rows;
  std::array<float, kQueries> most, sum;
  most.fill(-std::numeric_limits<float>::infinity());
  sum.fill(0.0f);
  for (std::int64_t k0 = 0; k0 < q1; k0 += kKeys) {
    const Block block{q0, q1, k0, std::min(q1, k0 + kKeys)};
    const Matrix scores(scratch, rows, block.k1 - k0, kKeys);
    product_single(scores, 0.0f, scale, q, Op::kPlain, k.row_range(k0, block.k1), Op::kTransposed);
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t n = std::max<std::int64_t>(0, block.visible(i));
      const float larger = std::max(most[at], row_max(scores.row(i), n));
      const float correction = k0 == 0 ? 0.0f : cpu::exp_f32(most[at] - larger);
      if (k0 > 0) scale_row(out.row(i), correction, out.cols);
      sum[at] = sum[at] * correction + exp_row(scores.row(i), larger, n, scores.cols);
      most[at] = larger;
    }
    product_single(out, k0 == 0 ? 0.0f : 1.0f, 1.0f, scores, Op::kPlain, v.row_range(k0, block.k1),
                   Op::kPlain);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    scale_row(out.row(i), 1.0f / sum[at], out.cols);
    if (lse) lse[i] = most[at] + std::log(sum[at]);
  }
}

struct HeadGradients {
  Matrix dq, dk, dv;
};

void backward_block(float* scratch, const HeadGradients& grad, ConstMatrix dout, ConstMatrix o,
                    const float* lse, ConstMatrix q, ConstMatrix k, ConstMatrix v, std::int64_t q0,
                    std::int64_t q1, float scale) {
  const std::int64_t rows = q1 - q0;
  const ConstMatrix query = q.row_range(q0, q1), d = dout.row_range(q0, q1);
  std::array<float, kQueries> delta;
  for (std::int64_t i = 0; i < rows; ++i)
    delta[static_cast<std::size_t>(i)] = row_dot(d.row(i), o.row(q0 + i), d.cols);
  for (std::int64_t k0 = 0; k0 < q1; k0 += kKeys) {
    const Block block{q0, q1, k0, std::min(q1, k0 + kKeys)};
    const Matrix p(scratch, rows, block.k1 - k0, kKeys);
    const Matrix dp(scratch + kQueries * kKeys, rows, block.k1 - k0, kKeys);
    const ConstMatrix key = k.row_range(k0, block.k1), value = v.row_range(k0, block.k1);
    product_single(p, 0.0f, scale, query, Op::kPlain, key, Op::kTransposed);
    for (std::int64_t i = 0; i < rows; ++i)
      exp_row(p.row(i), lse[q0 + i], std::max<std::int64_t>(0, block.visible(i)), p.cols);
    product_single(grad.dv.row_range(k0, block.k1), 1.0f, 1.0f, p, Op::kTransposed, d, Op::kPlain);
    product_single(dp, 0.0f, 1.0f, d, Op::kPlain, value, Op::kTransposed);
    for (std::int64_t i = 0; i < rows; ++i) {
      float *x = dp.row(i), shift = delta[static_cast<std::size_t>(i)];
      const float* weight = p.row(i);
#pragma omp simd
      for (std::int64_t j = 0; j < dp.cols; ++j) x[j] = weight[j] * (x[j] - shift);
    }
    product_single(grad.dq.row_range(q0, q1), k0 == 0 ? 0.0f : 1.0f, scale, dp, Op::kPlain, key, Op::kPlain);
    product_single(grad.dk.row_range(k0, block.k1), 1.0f, scale, dp, Op::kTransposed, query, Op::kPlain);
  }
}

float score_scale(const HeadShape& heads) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
}

}  // namespace

void attention_forward(const CpuContext& ctx, Matrix o, Matrix lse, ConstMatrix q, ConstMatrix k,
                       ConstMatrix v, std::span<const std::int32_t> sample_begin, const HeadShape& heads) {
  const std::int64_t dim = heads.head_dim, group = heads.n_heads / heads.n_kv_heads;
  const float scale = score_scale(heads);
  // A task is one block of queries of one head. Blocks are numbered over all samples.
  const auto n_blocks = [](std::int64_t length) { return (length + kQueries - 1) / kQueries; };
  std::int64_t blocks = 0;
  for (std::size_t s = 0; s + 1 < sample_begin.size(); ++s)
    blocks += n_blocks(sample_begin[s + 1] - sample_begin[s]);
  cpu::parallel_for(ctx, blocks * heads.n_heads, [&](std::int64_t task) {
    const std::int64_t h = task % heads.n_heads;
    std::int64_t index = task / heads.n_heads;
    std::size_t s = 0;
    for (; index >= n_blocks(sample_begin[s + 1] - sample_begin[s]); ++s)
      index -= n_blocks(sample_begin[s + 1] - sample_begin[s]);
    const std::int64_t begin = sample_begin[s], end = sample_begin[s + 1];
    const std::int64_t q0 = begin + index * kQueries, q1 = std::min(end, q0 + kQueries);
    forward_block(ctx.scratch(omp_get_thread_num()), head_of(o, h, dim, q0, q1),
                  lse.data ? lse.row(h) + q0 : nullptr, head_of(q, h, dim, q0, q1),
                  head_of(k, h / group, dim, begin, end), head_of(v, h / group, dim, begin, end), q0 - begin,
                  scale);
  });
}

void attention_cached(const CpuContext& ctx, Matrix o, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                      const HeadShape& heads) {
  const std::int64_t dim = heads.head_dim, group = heads.n_heads / heads.n_kv_heads, before = k.rows - q.rows;
  const float scale = score_scale(heads);
  const std::int64_t blocks = (q.rows + kQueries - 1) / kQueries;
  cpu::parallel_for(ctx, blocks * heads.n_heads, [&](std::int64_t task) {
    const std::int64_t h = task % heads.n_heads, q0 = task / heads.n_heads * kQueries,
                       q1 = std::min(q.rows, q0 + kQueries);
    forward_block(ctx.scratch(omp_get_thread_num()), head_of(o, h, dim, q0, q1), nullptr,
                  head_of(q, h, dim, q0, q1), head_of(k, h / group, dim, 0, k.rows),
                  head_of(v, h / group, dim, 0, k.rows), before + q0, scale);
  });
}

void attention_backward(const CpuContext& ctx, Matrix dq, Matrix dk, Matrix dv, ConstMatrix do_,
                        ConstMatrix o, ConstMatrix lse, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                        std::span<const std::int32_t> sample_begin, const HeadShape& heads) {
  const std::int64_t dim = heads.head_dim, group = heads.n_heads / heads.n_kv_heads;
  const float scale = score_scale(heads);
  const auto n_samples = static_cast<std::int64_t>(sample_begin.size()) - 1;
  // A task is one key-value head of one sample: it alone adds to that head's dk and dv, in a fixed order.
  cpu::parallel_for(ctx, n_samples * heads.n_kv_heads, [&](std::int64_t task) {
    const std::int64_t g = task % heads.n_kv_heads;
    const auto s = static_cast<std::size_t>(task / heads.n_kv_heads);
    const std::int64_t begin = sample_begin[s], end = sample_begin[s + 1];
    const Matrix dkey = head_of(dk, g, dim, begin, end), dvalue = head_of(dv, g, dim, begin, end);
    for (std::int64_t t = 0; t < end - begin; ++t) {
      std::fill_n(dkey.row(t), dim, 0.0f);
      std::fill_n(dvalue.row(t), dim, 0.0f);
    }
    const std::int64_t heads_of_key = planted("half_shared_projection") ? 1 : group;
    for (std::int64_t h = g * group; h < g * group + heads_of_key; ++h) {
      const HeadGradients grad{head_of(dq, h, dim, begin, end), dkey, dvalue};
      for (std::int64_t q0 = 0; q0 < end - begin; q0 += kQueries)
        backward_block(ctx.scratch(omp_get_thread_num()), grad, head_of(do_, h, dim, begin, end),
                       head_of(o, h, dim, begin, end), lse.row(h) + begin, head_of(q, h, dim, begin, end),
                       head_of(k, g, dim, begin, end), head_of(v, g, dim, begin, end), q0,
                       std::min(end - begin, q0 + kQueries), scale);
    }
  });
}

}  // namespace tandem
