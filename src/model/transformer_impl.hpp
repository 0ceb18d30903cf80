// The passes of transformer.hpp, for the sources that make them for a context: transformer.cpp, cuda/.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/attention.hpp"
#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/product.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rounding.hpp"
#include "kernels/swiglu.hpp"
#include "src/base/fault.hpp"
#include "src/model/adapted_product.hpp"
#include "src/model/transformer.hpp"

namespace tandem {

namespace transformer {

// Rows of logits at a time: a function of the vocabulary alone, since the chunk's shape decides bits. A
// device reads the whole head for each chunk.
template <class Context>
std::int64_t head_chunk(std::int64_t vocab) {
  if (!MemoryOf<Context>::kOnHost) return 1024;
  return vocab > 65536 ? 256 : 512;
}

template <class T = float, class Memory>
MatrixView<T> take_matrix(Memory& memory, std::int64_t rows, std::int64_t cols) {
  return {memory.template take<T>(rows * cols).data(), rows, cols};
}

}  // namespace transformer

template <class Context, class Real>
TransformerOn<Context, Real>::TransformerOn(const Context& ctx, const ModelConfig& config,
                                            const WeightViews<Real>& weights, const LoraLayout& lora,
                                            const BatchLimits& limits, const LoraDropout& dropout)
    : ctx_(ctx),
      config_(config),
      weights_(weights),
      lora_(lora),
      limits_(limits),
      dropout_(dropout),
      shape_(config),
      eps_(planted("wrong_norm_eps") ? 1e-5f : static_cast<float>(config.rms_eps)),
      lowest_(std::numeric_limits<std::int64_t>::max()),
      widest_u_(0) {
  dropout_streams_.resize(static_cast<std::size_t>(config.n_layers));
  for (std::int64_t l = config.n_layers - 1; l >= 0; --l)
    for (int g = kGroups - 1; g >= 0; --g) {
      const LoraGroup& group = lora.group(l, g);
      const auto members = static_cast<std::int64_t>(group.members.size());
      if (members > 0) lowest_ = depth(l, static_cast<Group>(g));
      widest_u_ = std::max(widest_u_, members * lora.rank());
      for (const LoraGroup::Member& member : group.members)
        dropout_streams_[static_cast<std::size_t>(l)][static_cast<std::size_t>(g)].emplace_back(
            dropout.seed, "dropout." + member.module);
    }
  const std::int64_t half = config.heads.head_dim / 2,
                     positions = std::max<std::int64_t>(1, limits.longest_sample);
  ArenaPlan rope_plan;
  transformer::take_matrix(rope_plan, positions, half), transformer::take_matrix(rope_plan, positions, half);
  rope_arena_ = MemoryOf<Context>::allocate(ctx, rope_plan.bytes(), "rotary positions");
  cos_ = transformer::take_matrix(rope_arena_, positions, half);
  sin_ = transformer::take_matrix(rope_arena_, positions, half);
  if constexpr (MemoryOf<Context>::kOnHost) {
    fill_rope_table(cos_, sin_, rope_frequencies(config));
  } else {
    const auto n = static_cast<std::size_t>(positions * half);
    std::vector<float> cosines(n), sines(n);
    fill_rope_table({cosines.data(), positions, half}, {sines.data(), positions, half},
                    rope_frequencies(config));
    copy_bytes_to_device(ctx, cos_.data, cosines.data(), n * sizeof(float));
    copy_bytes_to_device(ctx, sin_.data, sines.data(), n * sizeof(float));
  }
}

template <class Context, class Real>
void TransformerOn<Context, Real>::allocate(std::int64_t n_recomputed) {
  n_recomputed_ = n_recomputed;
  arena_ = MemoryOf<Context>::allocate(ctx_, planned_bytes(n_recomputed), "activations");
  place_ = BatchPlace<Context>(ctx_, std::max(limits_.train_tokens, limits_.eval_tokens));
}

// ---- memory ----

template <class Context, class Real>
template <class Memory>
auto TransformerOn<Context, Real>::take_layer(Memory& memory, std::int64_t t, bool keep) const -> Layer {
  Layer layer;
  layer.qkv = transformer::take_matrix<Real>(memory, t, shape_.out[kQkv]);
  layer.o = transformer::take_matrix<Real>(memory, t, shape_.in[kOut]);
  layer.lse = keep ? transformer::take_matrix(memory, config_.heads.n_heads, t) : Matrix();
  layer.x_mid = transformer::take_matrix(memory, t, config_.hidden);
  layer.gu = transformer::take_matrix<Real>(memory, t, shape_.out[kGateUp]);
  for (std::size_t g = 0; g < kGroups; ++g)
    layer.u[g] = transformer::take_matrix<Real>(
        memory, t,
        static_cast<std::int64_t>(lora_.group(0, static_cast<int>(g)).members.size()) * lora_.rank());
  return layer;
}

template <class Context, class Real>
template <class Memory>
auto TransformerOn<Context, Real>::take_activations(Memory& memory, std::int64_t t, bool keep,
                                                    std::int64_t n_recomputed) const -> Activations {
  Activations acts;
  const std::int64_t n = keep ? config_.n_layers : 1;
  Layer shared;
  if (keep && n_recomputed > 0) shared = take_layer(memory, t, keep);
  for (std::int64_t l = 0; l < n; ++l) {
    Layer layer = keep && l < n_recomputed ? shared : take_layer(memory, t, keep);
    layer.x = transformer::take_matrix(memory, t, config_.hidden);
    acts.layers.push_back(layer);
  }
  acts.x_final = keep ? transformer::take_matrix(memory, t, config_.hidden) : acts.layers[0].x;
  acts.dx = keep ? transformer::take_matrix(memory, t, config_.hidden) : Matrix();
  return acts;
}

template <class Context, class Real>
template <class Memory>
auto TransformerOn<Context, Real>::take_forward(Memory& memory, std::int64_t t) const -> ForwardScratch {
  ForwardScratch s;
  s.xn = transformer::take_matrix<Real>(memory, t, config_.hidden);
  s.q = transformer::take_matrix<Real>(memory, t, config_.heads.q_cols());
  s.k = transformer::take_matrix<Real>(memory, t, config_.heads.kv_cols());
  s.h = transformer::take_matrix<Real>(memory, t, config_.intermediate);
  s.dropped = transformer::take_matrix<Real>(
      memory, t, dropout_.p > 0.0 ? *std::max_element(shape_.in.begin(), shape_.in.end()) : 0);
  return s;
}

template <class Context, class Real>
template <class Memory>
auto TransformerOn<Context, Real>::take_loss(Memory& memory, std::int64_t n, bool keep) const -> LossScratch {
  LossScratch s;
  const std::int64_t with_gradient = keep ? n : 0;
  const std::int64_t chunk = std::min(n, transformer::head_chunk<Context>(config_.vocab_size));
  s.x = transformer::take_matrix(memory, n, config_.hidden);
  s.xn = transformer::take_matrix<Real>(memory, n, config_.hidden);
  s.dxn = transformer::take_matrix<Real>(memory, with_gradient, config_.hidden);
  s.logits = transformer::take_matrix(memory, chunk, config_.vocab_size);
  if constexpr (kFloat) {
    // The norm's input is not needed any more once its row's gradient is formed, so that may take its place.
    s.dlogits = s.logits;
    s.dx = s.xn;
  } else if (keep) {
    s.dlogits = transformer::take_matrix<Real>(memory, chunk, config_.vocab_size);
    s.dx = transformer::take_matrix(memory, n, config_.hidden);
  }
  return s;
}

template <class Context, class Real>
template <class Memory>
auto TransformerOn<Context, Real>::take_backward(Memory& memory, std::int64_t t) const -> BackwardScratch {
  BackwardScratch s;
  s.again = take_forward(memory, t);
  s.dxn = transformer::take_matrix<Real>(memory, t, config_.hidden);
  s.dq = transformer::take_matrix<Real>(memory, t, config_.heads.q_cols());
  s.dk = transformer::take_matrix<Real>(memory, t, config_.heads.kv_cols());
  s.dqkv = transformer::take_matrix<Real>(memory, t, shape_.out[kQkv]);
  s.dout = transformer::take_matrix<Real>(memory, t, shape_.in[kOut]);
  s.dh = transformer::take_matrix<Real>(memory, t, config_.intermediate);
  s.du = transformer::take_matrix<Real>(memory, t, widest_u_);
  if constexpr (!kFloat) s.dy = transformer::take_matrix<Real>(memory, t, config_.hidden);
  return s;
}

template <class Context, class Real>
std::size_t TransformerOn<Context, Real>::pass_bytes(std::int64_t n_tokens, std::int64_t n_scored, bool keep,
                                                     std::int64_t n_recomputed) const {
  ArenaPlan plan;
  take_activations(plan, n_tokens, keep, n_recomputed);
  const std::size_t mark = plan.mark();
  take_forward(plan, n_tokens);
  plan.release(mark);
  take_loss(plan, n_scored, keep);
  plan.release(mark);
  if (keep) take_backward(plan, n_tokens);
  return plan.bytes();
}

template <class Context, class Real>
std::size_t TransformerOn<Context, Real>::planned_bytes(std::int64_t n_recomputed) const {
  return std::max(pass_bytes(limits_.train_tokens, limits_.train_scored, true, n_recomputed),
                  pass_bytes(limits_.eval_tokens, limits_.eval_scored, false, 0));
}

// ---- passes ----

template <class Context, class Real>
void TransformerOn<Context, Real>::evaluate(std::span<const Real> adapter, const MicroBatch& batch,
                                            std::span<float> nll, PassObserver* observer) {
  if (batch.n_scored() == 0) return;
  const Pass pass{adapter, place_.put(ctx_, batch), false, {}, observer};
  forward(pass);
  loss(pass, nll);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::logits(std::span<const Real> adapter, const MicroBatch& batch,
                                          Matrix logits) {
  if (batch.n_scored() == 0) return;
  const Pass pass{adapter, place_.put(ctx_, batch), false, {}};
  forward(pass);
  const std::size_t mark = arena_.mark();
  const LossScratch s = take_loss(arena_, batch.n_scored(), false);
  gather_rows(ctx_, s.x, acts_.x_final, pass.batch.scored_row);
  rms_norm_forward(ctx_, s.xn, s.x, weights_.final_norm, eps_);
  // In the chunks of the loss, so that these are the very numbers it is computed from.
  const std::int64_t chunk = transformer::head_chunk<Context>(config_.vocab_size);
  for (std::int64_t begin = 0; begin < logits.rows; begin += chunk) {
    const std::int64_t end = std::min(logits.rows, begin + chunk);
    multiply(logits.row_range(begin, end),
             {{s.xn.row_range(begin, end), Op::kPlain, weights_.head, Op::kTransposed}});
  }
  arena_.release(mark);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::gradient(std::span<const Real> adapter, const MicroBatch& batch,
                                            std::span<float> nll, std::span<float> grad,
                                            const LayerDone& layer_done) {
  if (batch.n_scored() == 0) {  // a sum of nothing
    MemoryOf<Context>::zero(ctx_, grad);
    return;
  }
  const Pass pass{adapter, place_.put(ctx_, batch), true, grad, nullptr, &layer_done};
  forward(pass);
  loss(pass, nll);
  backward(pass);
}

template <class Context, class Real>
RopeInputs TransformerOn<Context, Real>::rope_inputs(const Pass& pass, std::int64_t l) const {
  const LayerWeightsOf<Real>& w = weights_.layer(l);
  return {w.q_norm, w.k_norm, eps_, pass.batch.position, cos_, sin_, config_.heads};
}

template <class Context, class Real>
auto TransformerOn<Context, Real>::values(const Layer& layer) const -> ConstStored {
  return layer.qkv.col_range(layer.qkv.cols - config_.heads.kv_cols(), layer.qkv.cols);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::forward(const Pass& pass) {
  arena_.release(0);
  acts_ = take_activations(arena_, pass.batch.n_tokens(), pass.keep, n_recomputed_);
  const std::size_t mark = arena_.mark();
  const ForwardScratch s = take_forward(arena_, pass.batch.n_tokens());
  gather_rows(ctx_, layer(pass, 0).x, weights_.embedding, pass.batch.ids);
  for (std::int64_t l = 0; l < config_.n_layers; ++l) {
    const Matrix next = l + 1 < config_.n_layers ? layer(pass, l + 1).x : acts_.x_final;
    forward_layer(pass, l, s, next);
    if (pass.observer) pass.observer->after_layer(l, next);
  }
  arena_.release(mark);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::forward_layer(const Pass& pass, std::int64_t l, const ForwardScratch& s,
                                                 Matrix next) {
  Layer& a = layer(pass, l);
  const LayerWeightsOf<Real>& w = weights_.layer(l);
  rms_norm_forward(ctx_, s.xn, a.x, w.input_norm, eps_);
  linear_forward(pass, l, kQkv, a.qkv, {}, s.xn, a.u[kQkv], s);
  if (!w.qkv_bias.empty()) add_bias(ctx_, a.qkv, w.qkv_bias);
  rope_forward(ctx_, s.q, s.k, a.qkv, rope_inputs(pass, l));
  attention_forward(ctx_, a.o, a.lse, s.q, s.k, values(a), pass.batch.sample_begin, config_.heads);
  linear_forward(pass, l, kOut, a.x_mid, a.x, a.o, a.u[kOut], s);
  rms_norm_forward(ctx_, s.xn, a.x_mid, w.post_norm, eps_);
  linear_forward(pass, l, kGateUp, a.gu, {}, s.xn, a.u[kGateUp], s);
  swiglu_forward(ctx_, s.h, a.gu);
  if (next.data)
    linear_forward(pass, l, kDown, next, a.x_mid, s.h, a.u[kDown], s);
  else
    adapters_in(pass, l, kDown, s.h, a.u[kDown], s);
}

template <class Context, class Real>
DropoutMask TransformerOn<Context, Real>::mask(const Pass& pass, std::int64_t l, Group group,
                                               std::size_t member) const {
  return {dropout_streams_[static_cast<std::size_t>(l)][group][member], dropout_.p, pass.batch.sample_key,
          pass.batch.position};
}

// u = x A^T of the group's adapters; with dropout, each module's A has an input of its own.
template <class Context, class Real>
void TransformerOn<Context, Real>::adapters_in(const Pass& pass, std::int64_t l, Group group, ConstStored x,
                                               Stored u, const ForwardScratch& s) {
  const LoraGroup& lora = lora_.group(l, group);
  if (pass.adapter.empty() || lora.members.empty()) return;
  const ConstStored a = lora_.a(pass.adapter, lora);
  if (!drops(pass)) {
    multiply(u, {{x, Op::kPlain, a, Op::kTransposed}});
    return;
  }
  const Stored dropped(s.dropped.data, x.rows, x.cols);
  const std::int64_t r = lora_.rank();
  for (std::size_t m = 0; m < lora.members.size(); ++m) {
    const auto at = static_cast<std::int64_t>(m) * r;
    dropout(ctx_, dropped, x, mask(pass, l, group, m));
    multiply(u.col_range(at, at + r), {{dropped, Op::kPlain, a.row_range(at, at + r), Op::kTransposed}});
  }
}

template <class Context, class Real>
template <class Result>
void TransformerOn<Context, Real>::linear_forward(const Pass& pass, std::int64_t l, Group group,
                                                  MatrixView<Result> y,
                                                  std::type_identity_t<MatrixView<const Result>> base,
                                                  ConstStored x, Stored u, const ForwardScratch& s) {
  adapters_in(pass, l, group, x, u, s);
  adapted_product(ctx_, y, base, x, weights_.layer(l).fused[group], lora_, lora_.group(l, group),
                  pass.adapter, u);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::loss(const Pass& pass, std::span<float> nll) {
  const std::int64_t n = pass.batch.n_scored();
  const std::size_t mark = arena_.mark();
  const LossScratch s = take_loss(arena_, n, pass.keep);
  gather_rows(ctx_, s.x, acts_.x_final, pass.batch.scored_row);
  rms_norm_forward(ctx_, s.xn, s.x, weights_.final_norm, eps_);
  const std::int64_t chunk = transformer::head_chunk<Context>(config_.vocab_size);
  const std::span<const std::int32_t> target = pass.batch.target;
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    const std::int64_t end = std::min(n, begin + chunk);
    const Matrix logits = s.logits.row_range(0, end - begin);
    const auto at = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
    multiply(logits, {{s.xn.row_range(begin, end), Op::kPlain, weights_.head, Op::kTransposed}});
    if (pass.observer) pass.observer->logits_of(begin, logits);
    const Stored dlogits = pass.keep ? s.dlogits.row_range(0, end - begin) : Stored();
    cross_entropy(ctx_, nll.subspan(at, count), logits, target.subspan(at, count), dlogits);
    if (pass.keep) multiply(s.dxn.row_range(begin, end), {{dlogits, Op::kPlain, weights_.head, Op::kPlain}});
  }
  if (pass.keep) {
    rms_norm_backward(ctx_, s.dx, s.dxn, s.x, weights_.final_norm, eps_, false);
    // Back to the rows that were scored; no other token has a gradient here.
    scatter_rows(ctx_, acts_.dx, s.dx, pass.batch.scored_row);
  }
  arena_.release(mark);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::backward(const Pass& pass) {
  const std::size_t mark = arena_.mark();
  const BackwardScratch s = take_backward(arena_, pass.batch.n_tokens());
  for (std::int64_t l = config_.n_layers - 1; l >= 0 && depth(l, kDown) >= lowest_; --l) {
    if (l < n_recomputed_) forward_layer(pass, l, s.again, {});
    mlp_backward(pass, l, s);
    if (depth(l, kOut) >= lowest_) attention_layer_backward(pass, l, s);
    if (*pass.layer_done) (*pass.layer_done)(l);
  }
  arena_.release(mark);
}

template <class Context, class Real>
auto TransformerOn<Context, Real>::residual_gradient(const BackwardScratch& s) -> ConstStored {
  if constexpr (kFloat) {
    return acts_.dx;
  } else {
    const auto n = static_cast<std::size_t>(acts_.dx.rows * acts_.dx.cols);
    to_bf16(ctx_, {s.dy.data, n}, {acts_.dx.data, n});
    return s.dy;
  }
}

template <class Context, class Real>
void TransformerOn<Context, Real>::mlp_backward(const Pass& pass, std::int64_t l, const BackwardScratch& s) {
  Layer& a = layer(pass, l);
  swiglu_forward(ctx_, s.again.h, a.gu);
  linear_backward(pass, l, kDown, s.dh, residual_gradient(s), s.again.h, a.u[kDown], s);
  if (depth(l, kGateUp) < lowest_) return;
  swiglu_backward(ctx_, a.gu, s.dh, a.gu);
  rms_norm_forward(ctx_, s.again.xn, a.x_mid, weights_.layer(l).post_norm, eps_);
  linear_backward(pass, l, kGateUp, s.dxn, a.gu, s.again.xn, a.u[kGateUp], s);
  if (depth(l, kGateUp) > lowest_)
    rms_norm_backward(ctx_, acts_.dx, s.dxn, a.x_mid, weights_.layer(l).post_norm, eps_, true);
}

template <class Context, class Real>
void TransformerOn<Context, Real>::attention_layer_backward(const Pass& pass, std::int64_t l,
                                                            const BackwardScratch& s) {
  Layer& a = layer(pass, l);
  linear_backward(pass, l, kOut, s.dout, residual_gradient(s), a.o, a.u[kOut], s);
  if (depth(l, kQkv) < lowest_) return;
  const RopeInputs rope = rope_inputs(pass, l);
  const Stored q = s.again.q, k = s.again.k;
  rope_forward(ctx_, q, k, a.qkv, rope);
  const Stored dv = s.dqkv.col_range(s.dqkv.cols - config_.heads.kv_cols(), s.dqkv.cols);
  attention_backward(ctx_, s.dq, s.dk, dv, s.dout, a.o, a.lse, q, k, values(a), pass.batch.sample_begin,
                     config_.heads);
  rope_backward(ctx_, s.dqkv, s.dq, s.dk, a.qkv, rope);
  rms_norm_forward(ctx_, s.again.xn, a.x, weights_.layer(l).input_norm, eps_);
  linear_backward(pass, l, kQkv, s.dxn, s.dqkv, s.again.xn, a.u[kQkv], s);
  if (depth(l, kQkv) > lowest_)
    rms_norm_backward(ctx_, acts_.dx, s.dxn, a.x, weights_.layer(l).input_norm, eps_, true);
}

// With u = x A^T and y = ... + s u B^T:  du = s dy B,  dA = du^T x,  dB = s dy^T u,  dx = dy W + du A.
// With dropout, x is the dropped input in dA, and du A passes through the mask on its way into dx.
template <class Context, class Real>
void TransformerOn<Context, Real>::linear_backward(const Pass& pass, std::int64_t l, Group group, Stored dx,
                                                   ConstStored dy, ConstStored x, ConstStored u,
                                                   const BackwardScratch& s) {
  const LoraGroup& lora = lora_.group(l, group);
  const std::int64_t r = lora_.rank(), n = static_cast<std::int64_t>(lora.members.size());
  const Stored du(s.du.data, s.du.rows, n * r);
  std::array<Term, 3> terms;
  for (std::int64_t m = 0; m < n; ++m) {
    const LoraGroup::Member& member = lora.members[static_cast<std::size_t>(m)];
    const float scale = lora_.scale_of(member);
    const ConstStored dy_m = dy.col_range(member.row_begin, member.row_end);
    terms[static_cast<std::size_t>(m)] = {dy_m,  Op::kPlain, lora_.b(pass.adapter, member), Op::kPlain, scale,
                                          m * r, (m + 1) * r};
    // Read as if its rows lay one behind the other.
    const ConstStored dy_b = planted("ignored_stride") ? ConstStored(dy_m.data, dy_m.rows, dy_m.cols) : dy_m;
    multiply(lora_.b(pass.grad, member),
             {{dy_b, Op::kTransposed, u.col_range(m * r, (m + 1) * r), Op::kPlain, scale}});
  }
  if (n > 0) product(ctx_, du, {}, std::span<const Term>(terms.data(), static_cast<std::size_t>(n)));
  const bool dropping = n > 0 && drops(pass), below = depth(l, group) > lowest_;
  const Term frozen{dy, Op::kPlain, weights_.layer(l).fused[group], Op::kPlain};
  if (!dropping) {
    if (n > 0) multiply(lora_.a(pass.grad, lora), {{du, Op::kTransposed, x, Op::kPlain}});
    if (below && n > 0)
      multiply(dx, {frozen, {du, Op::kPlain, lora_.a(pass.adapter, lora), Op::kPlain}});
    else if (below)
      multiply(dx, {frozen});
    return;
  }
  if (below) multiply(dx, {frozen});
  const Stored dropped(s.again.dropped.data, x.rows, x.cols);
  for (std::int64_t m = 0; m < n; ++m) {
    const DropoutMask kept = mask(pass, l, group, static_cast<std::size_t>(m));
    const ConstStored du_m = du.col_range(m * r, (m + 1) * r);
    dropout(ctx_, dropped, x, kept);
    multiply(lora_.a(pass.grad, lora).row_range(m * r, (m + 1) * r),
             {{du_m, Op::kTransposed, dropped, Op::kPlain}});
    if (!below) continue;
    multiply(dropped,
             {{du_m, Op::kPlain, lora_.a(pass.adapter, lora).row_range(m * r, (m + 1) * r), Op::kPlain}});
    dropout_backward(ctx_, dx, dropped, kept);
  }
}

}  // namespace tandem
