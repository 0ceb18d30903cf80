#include "src/model/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attention.hpp"
#include "kernels/bias.hpp"
#include "kernels/embedding.hpp"
#include "kernels/product.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/model/adapted_product.hpp"

namespace tandem {

Decoder::Decoder(const CpuContext& ctx, const ModelConfig& config, const Weights& weights,
                 const LoraLayout& lora, std::span<const float> adapter, std::int64_t capacity)
    : ctx_(ctx),
      config_(config),
      weights_(weights),
      lora_(lora),
      adapter_(adapter),
      shape_(config),
      eps_(static_cast<float>(config.rms_eps)),
      capacity_(capacity) {
  ArenaPlan plan;
  lay_out(plan);
  arena_ = Arena(plan.bytes(), "keys and values");
  lay_out(arena_);
  fill_rope_table(cos_, sin_, rope_frequencies(config));
}

template <class Memory>
void Decoder::lay_out(Memory& memory) {
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    return Matrix(memory.template take<float>(rows * cols).data(), rows, cols);
  };
  const std::int64_t t = std::min(capacity_, kChunk), c = config_.hidden, kv = config_.heads.kv_cols();
  cos_ = matrix(capacity_, config_.heads.head_dim / 2);
  sin_ = matrix(capacity_, config_.heads.head_dim / 2);
  cache_.clear();
  for (std::int64_t l = 0; l < config_.n_layers; ++l) {
    const Matrix k = matrix(capacity_, kv);
    cache_.push_back({k, matrix(capacity_, kv)});
  }
  std::size_t widest = 0;
  for (int g = 0; g < kGroups; ++g) widest = std::max(widest, lora_.group(0, g).members.size());
  scratch_ = {matrix(t, c),
              matrix(t, c),
              matrix(t, shape_.out[kQkv]),
              matrix(t, config_.heads.q_cols()),
              matrix(t, config_.heads.q_cols()),
              matrix(t, shape_.out[kGateUp]),
              matrix(t, config_.intermediate),
              matrix(t, static_cast<std::int64_t>(widest) * lora_.rank()),
              matrix(1, c),
              matrix(1, config_.vocab_size)};
}

Decoder::Scratch Decoder::rows(std::int64_t t) const {
  Scratch s = scratch_;
  for (Matrix* m : {&s.x, &s.xn, &s.qkv, &s.q, &s.o, &s.gu, &s.h, &s.u}) *m = m->row_range(0, t);
  return s;
}

std::span<const float> Decoder::prefill(std::span<const std::int32_t> ids) {
  length_ = 0;
  return extend(ids);
}

std::span<const float> Decoder::extend(std::span<const std::int32_t> ids) {
  if (ids.empty() || length_ + static_cast<std::int64_t>(ids.size()) > capacity_)
    throw Error(ErrorKind::kInternal,
                cat("decoder: ", length_, " + ", ids.size(), " tokens, capacity ", capacity_));
  for (const std::int32_t id : ids)
    if (id < 0 || id >= config_.vocab_size)
      throw Error(ErrorKind::kInternal,
                  cat("decoder: token id ", id, " is outside of the vocabulary of ", config_.vocab_size));
  const std::size_t chunk = static_cast<std::size_t>(kChunk);
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk)
    forward(ids.subspan(begin, std::min(chunk, ids.size() - begin)));
  const Matrix logits = scratch_.logits;
  product(ctx_, logits, {}, {{scratch_.last, Op::kPlain, weights_.head(), Op::kTransposed}});
  return {logits.data, static_cast<std::size_t>(logits.cols)};
}

void Decoder::forward(std::span<const std::int32_t> ids) {
  const auto t = static_cast<std::int64_t>(ids.size());
  position_.resize(ids.size());
  std::iota(position_.begin(), position_.end(), static_cast<std::int32_t>(length_));
  length_ += t;
  const Scratch s = rows(t);
  gather_rows(ctx_, s.x, weights_.embedding(), ids);
  for (std::int64_t l = 0; l < config_.n_layers; ++l) layer(l, s);
  rms_norm_forward(ctx_, s.last, s.x.row_range(t - 1, t), weights_.final_norm(), eps_);
}

void Decoder::layer(std::int64_t l, const Scratch& s) {
  const LayerWeights& w = weights_.layer(l);
  const Cache& cache = cache_[static_cast<std::size_t>(l)];
  const std::int64_t t = s.x.rows, before = length_ - t;
  rms_norm_forward(ctx_, s.xn, s.x, w.input_norm, eps_);
  linear(l, kQkv, s.qkv, {}, s.xn, s.u);
  if (!w.qkv_bias.empty()) add_bias(ctx_, s.qkv, w.qkv_bias);
  rope_forward(ctx_, s.q, cache.k.row_range(before, length_), s.qkv,
               {w.q_norm, w.k_norm, eps_, position_, cos_, sin_, config_.heads});
  for (std::int64_t i = 0; i < t; ++i)
    std::copy_n(s.qkv.row(i) + s.qkv.cols - cache.v.cols, cache.v.cols, cache.v.row(before + i));
  attention_cached(ctx_, s.o, s.q, cache.k.row_range(0, length_), cache.v.row_range(0, length_),
                   config_.heads);
  linear(l, kOut, s.x, s.x, s.o, s.u);
  rms_norm_forward(ctx_, s.xn, s.x, w.post_norm, eps_);
  linear(l, kGateUp, s.gu, {}, s.xn, s.u);
  swiglu_forward(ctx_, s.h, s.gu);
  linear(l, kDown, s.x, s.x, s.h, s.u);
}

void Decoder::linear(std::int64_t l, Group group, Matrix y, ConstMatrix base, ConstMatrix x, Matrix u) {
  const LoraGroup& lora = lora_.group(l, group);
  if (!adapter_.empty() && !lora.members.empty()) {
    u = Matrix(u.data, x.rows, static_cast<std::int64_t>(lora.members.size()) * lora_.rank());
    product(ctx_, u, {}, {{x, Op::kPlain, lora_.a(adapter_, lora), Op::kTransposed}});
  }
  adapted_product(ctx_, y, base, x, weights_.layer(l).fused[group], lora_, lora, adapter_, u);
}

std::int32_t greedy_token(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      throw Error(ErrorKind::kInternal, cat("the logit of token ", i, " is not finite"));
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace tandem
