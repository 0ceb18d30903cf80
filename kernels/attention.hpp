// Causal attention over packed samples, grouped queries; no T x T matrix is ever in memory (after Dao et al.
// 2022).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "kernels/rope.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

// Within each sample [begin[s], begin[s+1]) of the row, for query head h and key-value head g = floor(h*K/H):
//   o[t,h,:] = sum_{u <= t} softmax_u(<q[t,h,:], k[u,g,:]> / sqrt(D)) v[u,g,:]
// q [T,H*D], k [T,K*D], v [T,K*D] (any strides); o [T,H*D], overwritten; sample_begin [S+1], from 0 to T.
// lse [H,T]: log of the sum of exponentials, for backward; an empty matrix: not kept.
void attention_forward(const CpuContext& ctx, Matrix o, Matrix lse, ConstMatrix q, ConstMatrix k,
                       ConstMatrix v, std::span<const std::int32_t> sample_begin, const HeadShape& heads);

// The same for the last T tokens of one sample of N whose keys and values are kept: q, o [T,H*D], k, v
// [N,K*D], T <= N.
void attention_cached(const CpuContext& ctx, Matrix o, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                      const HeadShape& heads);

// dq [T,H*D], dk, dv [T,K*D] of do_ [T,H*D]: overwritten; the probabilities are computed again from lse.
// No operand may overlap another.
void attention_backward(const CpuContext& ctx, Matrix dq, Matrix dk, Matrix dv, ConstMatrix do_,
                        ConstMatrix o, ConstMatrix lse, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                        std::span<const std::int32_t> sample_begin, const HeadShape& heads);

// The heads that a device computes.
constexpr bool on_device(const HeadShape& heads) { return heads.head_dim == 64 || heads.head_dim == 128; }

// On a device, head_dim 64 or 128 (other sizes: kUsage); sample_begin is in its memory. bf16: products on
// tensor cores, softmax and sums in float32, lse in float32. Backward uses scratch, see
// attention_scratch_bytes().
void attention_forward(const CudaContext& ctx, Matrix o, Matrix lse, ConstMatrix q, ConstMatrix k,
                       ConstMatrix v, std::span<const std::int32_t> sample_begin, const HeadShape& heads);
void attention_forward(const CudaContext& ctx, Bf16Matrix o, Matrix lse, ConstBf16Matrix q, ConstBf16Matrix k,
                       ConstBf16Matrix v, std::span<const std::int32_t> sample_begin, const HeadShape& heads);
void attention_backward(const CudaContext& ctx, Matrix dq, Matrix dk, Matrix dv, ConstMatrix do_,
                        ConstMatrix o, ConstMatrix lse, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                        std::span<const std::int32_t> sample_begin, const HeadShape& heads);
void attention_backward(const CudaContext& ctx, Bf16Matrix dq, Bf16Matrix dk, Bf16Matrix dv,
                        ConstBf16Matrix do_, ConstBf16Matrix o, ConstMatrix lse, ConstBf16Matrix q,
                        ConstBf16Matrix k, ConstBf16Matrix v, std::span<const std::int32_t> sample_begin,
                        const HeadShape& heads);
// Scratch of the device's attention_backward on T tokens.
std::size_t attention_scratch_bytes(std::int64_t n_tokens, const HeadShape& heads);

}  // namespace tandem
