// Query and key heads: optional RMSNorm over head_dim (Qwen3), then rotary positions (Su et al. 2021),
// half-split.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

struct HeadShape {
  std::int64_t n_heads = 0;     // H
  std::int64_t n_kv_heads = 0;  // K, divides H
  std::int64_t head_dim = 0;    // D, even, at most kMaxHeadDim

  std::int64_t q_cols() const { return n_heads * head_dim; }
  std::int64_t kv_cols() const { return n_kv_heads * head_dim; }
  std::int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }
};
inline constexpr std::int64_t kMaxHeadDim = 256;

// cos, sin [P, D/2] of angle = position * frequency[i]; angle in double, cos and sin rounded to float. On the
// host.
void fill_rope_table(Matrix cos, Matrix sin, std::span<const double> frequency);

struct RopeInputs {
  std::span<const float> q_norm, k_norm;  // [D], both empty: no norm
  float eps = 0.0f;
  std::span<const std::int32_t> position;  // [T], each below P
  ConstMatrix cos, sin;                    // [P, D/2]
  HeadShape heads;
};

// q[t,h,:] = rope(norm(qkv[t,h,:])), k likewise.  qkv [T,(H+2K)D] as the fused product gives it; q [T,H*D], k
// [T,K*D], overwritten.
void rope_forward(const CpuContext& ctx, Matrix q, Matrix k, ConstMatrix qkv, const RopeInputs& in);

// Gradient with respect to the query and key columns of qkv, overwritten in dqkv [T,(H+2K)D]; the value
// columns are not touched. dq [T,H*D], dk [T,K*D]. dqkv may be qkv.
void rope_backward(const CpuContext& ctx, Matrix dqkv, ConstMatrix dq, ConstMatrix dk, ConstMatrix qkv,
                   const RopeInputs& in);

// On a device; spans and tables of `in` are in its memory too.
void rope_forward(const CudaContext& ctx, Matrix q, Matrix k, ConstMatrix qkv, const RopeInputs& in);
void rope_forward(const CudaContext& ctx, Bf16Matrix q, Bf16Matrix k, ConstBf16Matrix qkv,
                  const RopeInputs& in);
void rope_backward(const CudaContext& ctx, Matrix dqkv, ConstMatrix dq, ConstMatrix dk, ConstMatrix qkv,
                   const RopeInputs& in);
void rope_backward(const CudaContext& ctx, Bf16Matrix dqkv, ConstBf16Matrix dq, ConstBf16Matrix dk,
                   ConstBf16Matrix qkv, const RopeInputs& in);

}  // namespace tandem
