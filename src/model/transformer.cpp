#include "src/model/transformer.hpp"

#include <algorithm>
#include <limits>

#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/product.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/swiglu.hpp"

namespace tandem {

namespace {

// Rows of logits at a time: a function of the vocabulary alone, since the chunk's shape decides bits.
std::int64_t head_chunk(std::int64_t vocab) { return vocab > 65536 ? 256 : 512; }

template <class Memory>
Matrix take_matrix(Memory& memory, std::int64_t rows, std::int64_t cols) {
  return {memory.template take<float>(rows * cols).data(), rows, cols};
}

}  // namespace

Transformer::Transformer(const CpuContext& ctx, const ModelConfig& config, const Weights& weights,
                         const LoraLayout& lora, const BatchLimits& limits)
    : ctx_(ctx), config_(config), weights_(weights), lora_(lora), shape_(config),
      eps_(static_cast<float>(config.rms_eps)), lowest_(std::numeric_limits<std::int64_t>::max()), widest_u_(0) {
  for (std::int64_t l = config.n_layers - 1; l >= 0; --l)
    for (int g = kGroups - 1; g >= 0; --g) {
      const auto members = static_cast<std::int64_t>(lora.group(l, g).members.size());
      if (members > 0) lowest_ = depth(l, static_cast<Group>(g));
      widest_u_ = std::max(widest_u_, members * lora.rank());
    }
  const std::int64_t half = config.heads.head_dim / 2, positions = std::max<std::int64_t>(1, limits.longest_sample);
  ArenaPlan rope_plan;
  take_matrix(rope_plan, positions, half), take_matrix(rope_plan, positions, half);
  rope_arena_ = Arena(rope_plan.bytes(), "rotary positions");
  cos_ = take_matrix(rope_arena_, positions, half);
  sin_ = take_matrix(rope_arena_, positions, half);
  fill_rope_table(cos_, sin_, config.rope_theta);

  acts_.layers.resize(static_cast<std::size_t>(config.n_layers));
  arena_ = Arena(std::max(planned_bytes(limits.train_tokens, limits.train_scored, true),
                          planned_bytes(limits.eval_tokens, limits.eval_scored, false)),
                 "activations");
}

// ---- memory ----

template <class Memory>
void Transformer::take_activations(Memory& memory, std::int64_t t, bool keep) {
  const std::int64_t n = keep ? config_.n_layers : 1;
  for (std::int64_t l = 0; l < n; ++l) {
    Layer& layer = acts_.layers[static_cast<std::size_t>(l)];
    layer.x = take_matrix(memory, t, config_.hidden);
    layer.qkv = take_matrix(memory, t, shape_.out[kQkv]);
    layer.o = take_matrix(memory, t, shape_.in[kOut]);
    layer.lse = keep ? take_matrix(memory, config_.heads.n_heads, t) : Matrix();
    layer.x_mid = take_matrix(memory, t, config_.hidden);
    layer.gu = take_matrix(memory, t, shape_.out[kGateUp]);
    for (std::size_t g = 0; g < kGroups; ++g)
      layer.u[g] = take_matrix(memory, t, static_cast<std::int64_t>(lora_.group(l, static_cast<int>(g)).members.size()) * lora_.rank());
  }
  acts_.x_final = keep ? take_matrix(memory, t, config_.hidden) : acts_.layers[0].x;
  acts_.dx = keep ? take_matrix(memory, t, config_.hidden) : Matrix();
}

template <class Memory>
Transformer::ForwardScratch Transformer::take_forward(Memory& memory, std::int64_t t) {
  ForwardScratch s;
  s.xn = take_matrix(memory, t, config_.hidden);
  s.q = take_matrix(memory, t, config_.heads.q_cols());
  s.k = take_matrix(memory, t, config_.heads.kv_cols());
  s.h = take_matrix(memory, t, config_.intermediate);
  return s;
}

template <class Memory>
Transformer::LossScratch Transformer::take_loss(Memory& memory, std::int64_t n, bool keep) {
  LossScratch s;
  s.x = take_matrix(memory, n, config_.hidden);
  s.xn = take_matrix(memory, n, config_.hidden);
  s.dxn = take_matrix(memory, keep ? n : 0, config_.hidden);
  s.logits = take_matrix(memory, std::min(n, head_chunk(config_.vocab_size)), config_.vocab_size);
  return s;
}

template <class Memory>
Transformer::BackwardScratch Transformer::take_backward(Memory& memory, std::int64_t t) {
  BackwardScratch s;
  s.xn = take_matrix(memory, t, config_.hidden);
  s.dxn = take_matrix(memory, t, config_.hidden);
  s.q = take_matrix(memory, t, config_.heads.q_cols());
  s.k = take_matrix(memory, t, config_.heads.kv_cols());
  s.dq = take_matrix(memory, t, config_.heads.q_cols());
  s.dk = take_matrix(memory, t, config_.heads.kv_cols());
  s.dqkv = take_matrix(memory, t, shape_.out[kQkv]);
  s.dout = take_matrix(memory, t, shape_.in[kOut]);
  s.h = take_matrix(memory, t, config_.intermediate);
  s.dh = take_matrix(memory, t, config_.intermediate);
  s.du = take_matrix(memory, t, widest_u_);
  return s;
}

std::size_t Transformer::planned_bytes(std::int64_t n_tokens, std::int64_t n_scored, bool keep) {
  ArenaPlan plan;
  take_activations(plan, n_tokens, keep);
  const std::size_t mark = plan.mark();
  take_forward(plan, n_tokens);
  plan.release(mark);
  take_loss(plan, n_scored, keep);
  plan.release(mark);
  if (keep) take_backward(plan, n_tokens);
  return plan.bytes();
}

// ---- passes ----

void Transformer::evaluate(std::span<const float> adapter, const MicroBatch& batch, std::span<float> nll) {
  if (batch.n_scored() == 0) return;
  const Pass pass{adapter, batch, false, {}};
  forward(pass);
  loss(pass, nll);
}

void Transformer::gradient(std::span<const float> adapter, const MicroBatch& batch, std::span<float> nll,
                           std::span<float> grad) {
  if (batch.n_scored() == 0) {  // a sum of nothing
    std::fill(grad.begin(), grad.end(), 0.0f);
    return;
  }
  const Pass pass{adapter, batch, true, grad};
  forward(pass);
  loss(pass, nll);
  backward(pass);
}

RopeInputs Transformer::rope_inputs(const Pass& pass, std::int64_t l) const {
  const LayerWeights& w = weights_.layer(l);
  return {w.q_norm, w.k_norm, eps_, pass.batch.position, cos_, sin_, config_.heads};
}

ConstMatrix Transformer::values(const Layer& layer) const {
  return layer.qkv.col_range(layer.qkv.cols - config_.heads.kv_cols(), layer.qkv.cols);
}

void Transformer::forward(const Pass& pass) {
  const MicroBatch& batch = pass.batch;
  arena_.release(0);
  take_activations(arena_, batch.n_tokens(), pass.keep);
  const std::size_t mark = arena_.mark();
  const ForwardScratch s = take_forward(arena_, batch.n_tokens());
  gather_rows(ctx_, layer(pass, 0).x, weights_.embedding(), batch.ids);
  for (std::int64_t l = 0; l < config_.n_layers; ++l) {
    Layer& a = layer(pass, l);
    const LayerWeights& w = weights_.layer(l);
    rms_norm_forward(ctx_, s.xn, a.x, w.input_norm, eps_);
    linear_forward(pass, l, kQkv, a.qkv, {}, s.xn, a.u[kQkv]);
    rope_forward(ctx_, s.q, s.k, a.qkv, rope_inputs(pass, l));
    attention_forward(ctx_, a.o, a.lse, s.q, s.k, values(a), batch.sample_begin, config_.heads);
    linear_forward(pass, l, kOut, a.x_mid, a.x, a.o, a.u[kOut]);
    rms_norm_forward(ctx_, s.xn, a.x_mid, w.post_norm, eps_);
    linear_forward(pass, l, kGateUp, a.gu, {}, s.xn, a.u[kGateUp]);
    swiglu_forward(ctx_, s.h, a.gu);
    const Matrix next = l + 1 < config_.n_layers ? layer(pass, l + 1).x : acts_.x_final;
    linear_forward(pass, l, kDown, next, a.x_mid, s.h, a.u[kDown]);
  }
  arena_.release(mark);
}

// y = base + x W^T + s (x A^T) B^T for each adapted module's columns of y.
void Transformer::linear_forward(const Pass& pass, std::int64_t l, Group group, Matrix y, ConstMatrix base,
                                 ConstMatrix x, Matrix u) {
  std::array<ProductTerm, 4> terms;
  std::size_t n = 0;
  terms[n++] = {x, Op::kPlain, weights_.layer(l).fused[group], Op::kTransposed};
  const LoraGroup& lora = lora_.group(l, group);
  if (!pass.adapter.empty() && !lora.members.empty()) {
    product(ctx_, u, {}, {{x, Op::kPlain, lora_.a(pass.adapter, lora), Op::kTransposed}});
    for (std::size_t m = 0; m < lora.members.size(); ++m) {
      const LoraGroup::Member& member = lora.members[m];
      const auto column = static_cast<std::int64_t>(m) * lora_.rank();
      terms[n++] = {u.col_range(column, column + lora_.rank()), Op::kPlain, lora_.b(pass.adapter, member),
                    Op::kTransposed, lora_.scale(), member.row_begin, member.row_end};
    }
  }
  product(ctx_, y, base, std::span<const ProductTerm>(terms.data(), n));
}

void Transformer::loss(const Pass& pass, std::span<float> nll) {
  const std::int64_t n = pass.batch.n_scored();
  const std::size_t mark = arena_.mark();
  const LossScratch s = take_loss(arena_, n, pass.keep);
  gather_rows(ctx_, s.x, acts_.x_final, pass.batch.scored_row);
  rms_norm_forward(ctx_, s.xn, s.x, weights_.final_norm(), eps_);
  const std::int64_t chunk = head_chunk(config_.vocab_size);
  const std::span<const std::int32_t> target(pass.batch.target);
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    const std::int64_t end = std::min(n, begin + chunk);
    const Matrix logits = s.logits.row_range(0, end - begin);
    const auto at = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
    product(ctx_, logits, {}, {{s.xn.row_range(begin, end), Op::kPlain, weights_.head(), Op::kTransposed}});
    cross_entropy(ctx_, nll.subspan(at, count), logits, target.subspan(at, count), pass.keep);
    if (pass.keep)
      product(ctx_, s.dxn.row_range(begin, end), {}, {{logits, Op::kPlain, weights_.head(), Op::kPlain}});
  }
  if (pass.keep) {
    // The norm's input is not needed any more once its row's gradient is formed, so that may take its place ...
    rms_norm_backward(ctx_, s.xn, s.dxn, s.x, weights_.final_norm(), eps_, false);
    // ... and goes back to the rows that were scored; no other token has a gradient here.
    scatter_rows(ctx_, acts_.dx, s.xn, pass.batch.scored_row);
  }
  arena_.release(mark);
}

void Transformer::backward(const Pass& pass) {
  const std::size_t mark = arena_.mark();
  BackwardScratch s = take_backward(arena_, pass.batch.n_tokens());
  for (std::int64_t l = config_.n_layers - 1; l >= 0 && depth(l, kDown) >= lowest_; --l) {
    mlp_backward(pass, l, s);
    if (depth(l, kOut) >= lowest_) attention_layer_backward(pass, l, s);
  }
  arena_.release(mark);
}

void Transformer::mlp_backward(const Pass& pass, std::int64_t l, BackwardScratch& s) {
  Layer& a = layer(pass, l);
  swiglu_forward(ctx_, s.h, a.gu);
  linear_backward(pass, l, kDown, s.dh, acts_.dx, s.h, a.u[kDown], s.du);
  if (depth(l, kGateUp) < lowest_) return;
  swiglu_backward(ctx_, a.gu, s.dh, a.gu);
  rms_norm_forward(ctx_, s.xn, a.x_mid, weights_.layer(l).post_norm, eps_);
  linear_backward(pass, l, kGateUp, s.dxn, a.gu, s.xn, a.u[kGateUp], s.du);
  if (depth(l, kGateUp) > lowest_)
    rms_norm_backward(ctx_, acts_.dx, s.dxn, a.x_mid, weights_.layer(l).post_norm, eps_, true);
}

void Transformer::attention_layer_backward(const Pass& pass, std::int64_t l, BackwardScratch& s) {
  Layer& a = layer(pass, l);
  linear_backward(pass, l, kOut, s.dout, acts_.dx, a.o, a.u[kOut], s.du);
  if (depth(l, kQkv) < lowest_) return;
  const RopeInputs rope = rope_inputs(pass, l);
  rope_forward(ctx_, s.q, s.k, a.qkv, rope);
  const Matrix dv = s.dqkv.col_range(s.dqkv.cols - config_.heads.kv_cols(), s.dqkv.cols);
  attention_backward(ctx_, s.dq, s.dk, dv, s.dout, a.o, a.lse, s.q, s.k, values(a), pass.batch.sample_begin,
                     config_.heads);
  rope_backward(ctx_, s.dqkv, s.dq, s.dk, a.qkv, rope);
  rms_norm_forward(ctx_, s.xn, a.x, weights_.layer(l).input_norm, eps_);
  linear_backward(pass, l, kQkv, s.dxn, s.dqkv, s.xn, a.u[kQkv], s.du);
  if (depth(l, kQkv) > lowest_)
    rms_norm_backward(ctx_, acts_.dx, s.dxn, a.x, weights_.layer(l).input_norm, eps_, true);
}

// With u = x A^T and y = ... + s u B^T:  du = s dy B,  dA = du^T x,  dB = s dy^T u,  dx = dy W + du A.
void Transformer::linear_backward(const Pass& pass, std::int64_t l, Group group, Matrix dx, ConstMatrix dy,
                                  ConstMatrix x, ConstMatrix u, Matrix du) {
  const LoraGroup& lora = lora_.group(l, group);
  const std::int64_t r = lora_.rank(), n = static_cast<std::int64_t>(lora.members.size());
  du = Matrix(du.data, du.rows, n * r);
  if (n > 0) {
    std::array<ProductTerm, 3> terms;
    for (std::int64_t m = 0; m < n; ++m) {
      const LoraGroup::Member& member = lora.members[static_cast<std::size_t>(m)];
      const ConstMatrix dy_m = dy.col_range(member.row_begin, member.row_end);
      terms[static_cast<std::size_t>(m)] = {dy_m, Op::kPlain, lora_.b(pass.adapter, member), Op::kPlain,
                                            lora_.scale(), m * r, (m + 1) * r};
      product(ctx_, lora_.b(pass.grad, member), {},
              {{dy_m, Op::kTransposed, u.col_range(m * r, (m + 1) * r), Op::kPlain, lora_.scale()}});
    }
    product(ctx_, du, {}, std::span<const ProductTerm>(terms.data(), static_cast<std::size_t>(n)));
    product(ctx_, lora_.a(pass.grad, lora), {}, {{du, Op::kTransposed, x, Op::kPlain}});
  }
  if (depth(l, group) <= lowest_) return;
  const ProductTerm frozen{dy, Op::kPlain, weights_.layer(l).fused[group], Op::kPlain};
  if (n > 0)
    product(ctx_, dx, {}, {frozen, {du, Op::kPlain, lora_.a(pass.adapter, lora), Op::kPlain}});
  else
    product(ctx_, dx, {}, {frozen});
}

}  // namespace tandem
