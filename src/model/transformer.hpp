// The native forward pass and its hand-derived backward pass for LoRA, on one micro-batch.
//
// Kept per layer for backward: the residual stream before attention and before the MLP, the fused projections, the
// attention's output and log-sum, the adapters' inner activations. Norms, rotary positions and SwiGLU are cheap and
// computed again. No gradient is formed for frozen weights, nor below the lowest adapter; logits are computed for
// target tokens only, in chunks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.hpp"
#include "src/base/arena.hpp"
#include "src/base/matrix.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"
#include "src/model/micro_batch.hpp"
#include "src/model/weights.hpp"

namespace tandem {

// The largest micro-batches of a run; memory is planned for them.
struct BatchLimits {
  std::int64_t train_tokens = 0, train_scored = 0;
  std::int64_t eval_tokens = 0, eval_scored = 0;
  std::int64_t longest_sample = 0;
};

class Transformer {
 public:
  // The references must outlive this object.
  Transformer(const CpuContext& ctx, const ModelConfig& config, const Weights& weights, const LoraLayout& lora,
              const BatchLimits& limits);

  // nll[n] of each scored token. adapter: flat array of the layout, or empty: the base model alone.
  void evaluate(std::span<const float> adapter, const MicroBatch& batch, std::span<float> nll);

  // nll, and the gradient of the nll *sum* with respect to the adapter, overwritten (flat array; gaps between tensors
  // are left alone).
  void gradient(std::span<const float> adapter, const MicroBatch& batch, std::span<float> nll, std::span<float> grad);

  std::size_t arena_bytes() const { return arena_.bytes(); }

 private:
  struct Layer {
    Matrix x, qkv, o, lse, x_mid, gu;
    std::array<Matrix, kGroups> u;  // A x of each group's adapters [T, r*members]
  };
  struct Activations {
    std::vector<Layer> layers;
    Matrix x_final, dx;
  };
  struct ForwardScratch {
    Matrix xn, q, k, h;
  };
  struct LossScratch {
    Matrix x, xn, dxn, logits;
  };
  struct BackwardScratch {
    Matrix xn, dxn, q, k, dq, dk, dqkv, dout, h, dh, du;
  };
  // The micro-batch in work, and how its gradients are wanted.
  struct Pass {
    std::span<const float> adapter;
    const MicroBatch& batch;
    bool keep;  // for backward
    std::span<float> grad;
  };

  template <class Memory>
  void take_activations(Memory& memory, std::int64_t n_tokens, bool keep);
  template <class Memory>
  ForwardScratch take_forward(Memory& memory, std::int64_t n_tokens);
  template <class Memory>
  LossScratch take_loss(Memory& memory, std::int64_t n_scored, bool keep);
  template <class Memory>
  BackwardScratch take_backward(Memory& memory, std::int64_t n_tokens);
  std::size_t planned_bytes(std::int64_t n_tokens, std::int64_t n_scored, bool keep);

  Layer& layer(const Pass& pass, std::int64_t l) {
    return acts_.layers[pass.keep ? static_cast<std::size_t>(l) : 0];
  }
  void forward(const Pass& pass);
  void loss(const Pass& pass, std::span<float> nll);
  void backward(const Pass& pass);
  void mlp_backward(const Pass& pass, std::int64_t l, BackwardScratch& s);
  void attention_layer_backward(const Pass& pass, std::int64_t l, BackwardScratch& s);

  void linear_forward(const Pass& pass, std::int64_t l, Group group, Matrix y, ConstMatrix base, ConstMatrix x, Matrix u);
  // Gradients of the group's adapters; dx [T, in] too where something below needs it.
  void linear_backward(const Pass& pass, std::int64_t l, Group group, Matrix dx, ConstMatrix dy, ConstMatrix x,
                       ConstMatrix u, Matrix du);
  // Groups in order of computation; gradients flow down to the lowest with an adapter.
  static std::int64_t depth(std::int64_t l, Group group) { return l * kGroups + group; }
  RopeInputs rope_inputs(const Pass& pass, std::int64_t l) const;
  ConstMatrix values(const Layer& layer) const;  // the v columns of qkv

  const CpuContext& ctx_;
  const ModelConfig& config_;
  const Weights& weights_;
  const LoraLayout& lora_;
  LayerShape shape_;
  float eps_;
  std::int64_t lowest_;
  std::int64_t widest_u_;
  Arena rope_arena_, arena_;
  Matrix cos_, sin_;
  Activations acts_;
};

}  // namespace tandem
