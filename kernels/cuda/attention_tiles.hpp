// What both attention kernels (float32 on CUDA cores, bfloat16 on tensor cores) share: which block computes
// what, operands as rows, and a kernel's launchers.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/cuda/port.hpp"
#include "kernels/cuda_context.hpp"
#include "kernels/rope.hpp"
#include "src/base/matrix.hpp"

namespace tandem::cuda::attention {

// A matrix of tokens by heads * head_dim.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
  std::int64_t aligned;  // not 0: every head of every row begins at a multiple of 16 bytes

  Rows() = default;
  explicit Rows(const MatrixView<T>& m)
      : data(m.data),
        stride(m.stride),
        aligned(reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 &&
                m.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0) {}
  TANDEM_DEVICE T* at(std::int64_t row, std::int64_t col) const { return data + row * stride + col; }
};

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

TANDEM_DEVICE std::int32_t min_of(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

// The samples of a packed row.
struct Samples {
  const std::int32_t* begin;
  std::int64_t count;
};

// Blocks that compute `per_block` rows each and begin at their sample's first row, where a token has
// `rows_per_token` rows: no more than this, whatever the samples' lengths, which only the device knows.
inline std::int64_t blocks_bound(std::int64_t n_tokens, std::int64_t n_samples, int rows_per_token,
                                 int per_block) {
  return n_tokens * rows_per_token / per_block + n_samples;
}

// One block's share: `first` is its first row, counted from the sample's; nothing where length is 0.
struct Share {
  std::int32_t begin = 0;   // of the sample, in tokens
  std::int32_t length = 0;  // of the sample
  std::int32_t first = 0;
};

// The share of number `index`. A sample's results do not depend on its neighbours: its blocks are counted
// from its own first token.
TANDEM_DEVICE Share find_share(const Samples& samples, std::int64_t index, int rows_per_token,
                               int per_block) {
  for (std::int64_t s = 0; s < samples.count; ++s) {
    const std::int32_t begin = samples.begin[s], length = samples.begin[s + 1] - begin;
    const std::int64_t rows = static_cast<std::int64_t>(length) * rows_per_token;
    const std::int64_t blocks = (rows + per_block - 1) / per_block;
    if (index < blocks) return {begin, length, static_cast<std::int32_t>(index * per_block)};
    index -= blocks;
  }
  return {};
}

// Blocks of a grid that differ in their work: those of the last rows, which see the most keys, are first.
struct Work {
  std::int64_t index;  // share
  int head;
};
TANDEM_DEVICE Work heaviest_first(int n_heads) {
  const auto n = static_cast<unsigned>(n_heads);
  return {static_cast<std::int64_t>((grid_x() - 1 - block_x()) / n), static_cast<int>(block_x() % n)};
}
TANDEM_DEVICE Work in_order(int n_heads) {
  const auto n = static_cast<unsigned>(n_heads);
  return {static_cast<std::int64_t>(block_x() / n), static_cast<int>(block_x() % n)};
}

// Operands as in attention.hpp. These structures have no padding: the emulation looks for host pointers in
// all of a kernel's arguments.
template <class T>
struct ForwardOperands {
  Rows<T> o;
  float* lse;  // [H,T], rows `lse_stride` apart; null: not kept
  std::int64_t lse_stride;
  Rows<const T> q, k, v;
  Samples samples;
  int n_heads, n_kv_heads, group;  // group = n_heads / n_kv_heads
  float scale;
};

template <class T>
struct BackwardOperands {
  Rows<T> dq, dk, dv;
  Rows<const T> d, o;
  const float* lse;
  std::int64_t lse_stride;
  float* delta;  // [H,T], rows delta_stride apart
  std::int64_t delta_stride;
  Rows<const T> q, k, v;
  Samples samples;
  int n_heads, n_kv_heads, group;  // group = n_heads / n_kv_heads
  float scale;
};

// attention_f32.cu, attention_bf16.cu. head_dim is 64 or 128; delta is there.
void forward(const CudaContext& ctx, const ForwardOperands<float>& x, std::int64_t n_tokens, int head_dim);
void forward(const CudaContext& ctx, const ForwardOperands<Bf16>& x, std::int64_t n_tokens, int head_dim);
void backward(const CudaContext& ctx, const BackwardOperands<float>& x, std::int64_t n_tokens, int head_dim);
void backward(const CudaContext& ctx, const BackwardOperands<Bf16>& x, std::int64_t n_tokens, int head_dim);

}  // namespace tandem::cuda::attention
