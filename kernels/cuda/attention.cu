#include <cmath>

#include "kernels/attention.hpp"
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/launch.hpp"
#include "src/base/error.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;

// delta[h,t] = sum_i d[t,h,i] * o[t,h,i]: one group of lanes for each head of each token, 16 bytes a lane.
template <class T, int kDim>
TANDEM_KERNEL delta_kernel(attention::BackwardOperands<T> x, std::int64_t n_tokens) {
  constexpr int kEach = Vec16<T>::kCount, kLanes = kDim / kEach;
  const std::int64_t item = global_thread() / kLanes;
  const int col = static_cast<int>(global_thread() % kLanes) * kEach;
  const std::int64_t t = item / x.n_heads, h = item % x.n_heads;
  float sum = 0.0f;
  if (t < n_tokens) {
    const T *d = x.d.at(t, h * kDim + col), *o = x.o.at(t, h * kDim + col);
    if (x.d.aligned && x.o.aligned) {
      const Vec16<T> a = load16(d), b = load16(o);
      for (int i = 0; i < kEach; ++i) sum = fma_f32(to_float(a.at[i]), to_float(b.at[i]), sum);
    } else {
      for (int i = 0; i < kEach; ++i) sum = fma_f32(to_float(d[i]), to_float(o[i]), sum);
    }
  }
  for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (t < n_tokens && col == 0) x.delta[h * x.delta_stride + t] = sum;
}

template <class T>
void launch_delta(const CudaContext& ctx, const attention::BackwardOperands<T>& x, std::int64_t n_tokens,
                  int head_dim) {
  const std::int64_t lanes = head_dim / Vec16<T>::kCount;
  launch(ctx, "attention_delta", head_dim == 64 ? delta_kernel<T, 64> : delta_kernel<T, 128>,
         {blocks_for(n_tokens * x.n_heads * lanes, kThreads)}, kThreads, 0, x, n_tokens);
}

void check_head_dim(const HeadShape& heads) {
  if (heads.head_dim != 64 && heads.head_dim != 128)
    throw Error(ErrorKind::kUsage, cat("head_dim is ", heads.head_dim,
                                       ": attention on GPUs is computed for head_dim 64 and 128 only; train "
                                       "this model on CPUs"));
}

attention::Samples samples_of(std::span<const std::int32_t> begin) {
  return {begin.data(), begin.empty() ? 0 : static_cast<std::int64_t>(begin.size()) - 1};
}

float score_scale(const HeadShape& heads) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
}

template <class T>
void run_forward(const CudaContext& ctx, MatrixView<T> o, Matrix lse, MatrixView<const T> q,
                 MatrixView<const T> k, MatrixView<const T> v, std::span<const std::int32_t> sample_begin,
                 const HeadShape& heads) {
  check_head_dim(heads);
  if (q.rows == 0) return;
  attention::ForwardOperands<T> x;
  x.o = attention::Rows<T>(o);
  x.lse = lse.data, x.lse_stride = lse.stride;
  x.q = attention::Rows<const T>(q), x.k = attention::Rows<const T>(k), x.v = attention::Rows<const T>(v);
  x.samples = samples_of(sample_begin);
  x.n_heads = static_cast<int>(heads.n_heads), x.n_kv_heads = static_cast<int>(heads.n_kv_heads);
  x.group = x.n_heads / x.n_kv_heads;
  x.scale = score_scale(heads);
  attention::forward(ctx, x, q.rows, static_cast<int>(heads.head_dim));
}

template <class T>
void run_backward(const CudaContext& ctx, MatrixView<T> dq, MatrixView<T> dk, MatrixView<T> dv,
                  MatrixView<const T> d, MatrixView<const T> o, ConstMatrix lse, MatrixView<const T> q,
                  MatrixView<const T> k, MatrixView<const T> v, std::span<const std::int32_t> sample_begin,
                  const HeadShape& heads) {
  check_head_dim(heads);
  if (q.rows == 0) return;
  attention::BackwardOperands<T> x;
  x.dq = attention::Rows<T>(dq), x.dk = attention::Rows<T>(dk), x.dv = attention::Rows<T>(dv);
  x.d = attention::Rows<const T>(d), x.o = attention::Rows<const T>(o);
  x.lse = lse.data, x.lse_stride = lse.stride;
  x.delta = static_cast<float*>(ctx.scratch(attention_scratch_bytes(q.rows, heads)));
  x.delta_stride = q.rows;
  x.q = attention::Rows<const T>(q), x.k = attention::Rows<const T>(k), x.v = attention::Rows<const T>(v);
  x.samples = samples_of(sample_begin);
  x.n_heads = static_cast<int>(heads.n_heads), x.n_kv_heads = static_cast<int>(heads.n_kv_heads);
  x.group = x.n_heads / x.n_kv_heads;
  x.scale = score_scale(heads);
  const int head_dim = static_cast<int>(heads.head_dim);
  launch_delta(ctx, x, q.rows, head_dim);
  attention::backward(ctx, x, q.rows, head_dim);
}

}  // namespace

std::size_t attention_scratch_bytes(std::int64_t n_tokens, const HeadShape& heads) {
  return static_cast<std::size_t>(n_tokens * heads.n_heads) * sizeof(float);
}

void attention_forward(const CudaContext& ctx, Matrix o, Matrix lse, ConstMatrix q, ConstMatrix k,
                       ConstMatrix v, std::span<const std::int32_t> sample_begin, const HeadShape& heads) {
  run_forward<float>(ctx, o, lse, q, k, v, sample_begin, heads);
}

void attention_forward(const CudaContext& ctx, Bf16Matrix o, Matrix lse, ConstBf16Matrix q, ConstBf16Matrix k,
                       ConstBf16Matrix v, std::span<const std::int32_t> sample_begin,
                       const HeadShape& heads) {
  run_forward<Bf16>(ctx, o, lse, q, k, v, sample_begin, heads);
}

void attention_backward(const CudaContext& ctx, Matrix dq, Matrix dk, Matrix dv, ConstMatrix do_,
                        ConstMatrix o, ConstMatrix lse, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                        std::span<const std::int32_t> sample_begin, const HeadShape& heads) {
  run_backward<float>(ctx, dq, dk, dv, do_, o, lse, q, k, v, sample_begin, heads);
}

void attention_backward(const CudaContext& ctx, Bf16Matrix dq, Bf16Matrix dk, Bf16Matrix dv,
                        ConstBf16Matrix do_, ConstBf16Matrix o, ConstMatrix lse, ConstBf16Matrix q,
                        ConstBf16Matrix k, ConstBf16Matrix v, std::span<const std::int32_t> sample_begin,
                        const HeadShape& heads) {
  run_backward<Bf16>(ctx, dq, dk, dv, do_, o, lse, q, k, v, sample_begin, heads);
}

}  // namespace tandem
