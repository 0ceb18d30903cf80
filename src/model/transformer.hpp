// The native forward pass and its hand-derived backward pass for LoRA, on one micro-batch. Written once: over
// the context that computes, and the format of weights, stored activations and product inputs (float, or Bf16
// on a device). The residual stream, its gradient, the adapter's gradient and logits are float32 in both.
//
// Kept per layer for backward: the residual stream before attention and before the MLP, the fused
// projections, the attention's output and log-sum, the adapters' inner activations. Norms, rotary positions
// and SwiGLU are cheap and computed again. Of a recomputed layer only its input is kept: the rest is computed
// again, with the same bits. No gradient is formed for frozen weights, nor below the lowest adapter; logits
// are computed for target tokens only, in chunks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/context.hpp"
#include "kernels/dropout.hpp"
#include "kernels/product.hpp"
#include "kernels/rope.hpp"
#include "src/base/arena.hpp"
#include "src/base/matrix.hpp"
#include "src/model/batch_place.hpp"
#include "src/model/config.hpp"
#include "src/model/context_memory.hpp"
#include "src/model/lora.hpp"
#include "src/model/micro_batch.hpp"
#include "src/model/pass_observer.hpp"
#include "src/model/weights.hpp"

namespace tandem {

// The largest micro-batches of a run; memory is planned for them.
struct BatchLimits {
  std::int64_t train_tokens = 0, train_scored = 0;
  std::int64_t eval_tokens = 0, eval_scored = 0;
  std::int64_t longest_sample = 0;
};

struct LoraDropout {
  double p = 0.0;
  std::uint64_t seed = 0;
};

template <class Context, class Real>
class TransformerOn {
 public:
  // Told when backward has the gradient of layer l's adapters, the last layer first; no earlier layer follows
  // once there is none with an adapter below.
  using LayerDone = std::function<void(std::int64_t l)>;

  // The references must outlive this object; weights are where ctx computes. allocate() comes before the
  // first pass.
  TransformerOn(const Context& ctx, const ModelConfig& config, const WeightViews<Real>& weights,
                const LoraLayout& lora, const BatchLimits& limits, const LoraDropout& dropout = {});

  // Memory of the activations where the first n_recomputed layers are computed again in backward.
  std::size_t planned_bytes(std::int64_t n_recomputed) const;
  void allocate(std::int64_t n_recomputed = 0);

  // Spans and matrices below are where ctx computes, batch is on the host.
  // nll[n] of each scored token. adapter: flat array of the layout, or empty: the base model alone. observer:
  // may be none.
  void evaluate(std::span<const Real> adapter, const MicroBatch& batch, std::span<float> nll,
                PassObserver* observer = nullptr);

  // logits[n,:] that each scored token is predicted by. logits [N,V], overwritten.
  void logits(std::span<const Real> adapter, const MicroBatch& batch, Matrix logits);

  // nll, and the gradient of the nll *sum* with respect to the adapter, overwritten (flat array; gaps between
  // tensors are left alone).
  void gradient(std::span<const Real> adapter, const MicroBatch& batch, std::span<float> nll,
                std::span<float> grad, const LayerDone& layer_done = {});

  std::size_t arena_bytes() const { return arena_.bytes(); }

 private:
  static constexpr bool kFloat = std::is_same_v<Real, float>;
  using Stored = MatrixView<Real>;
  using ConstStored = MatrixView<const Real>;
  using Term = ProductTermOf<Real>;

  struct Layer {
    Matrix x, x_mid, lse;
    Stored qkv, o, gu;
    std::array<Stored, kGroups> u;  // A x of each group's adapters [T, r*members]
  };
  struct Activations {
    std::vector<Layer> layers;  // of recomputed layers all but x is shared
    Matrix x_final, dx;
  };
  struct ForwardScratch {
    Stored xn, q, k, h;
    Stored dropped;  // the input of one module's A
  };
  struct LossScratch {
    Matrix x, logits;
    Stored xn, dxn;
    Stored dlogits;  // logits themselves where formats are equal
    Matrix dx;       // likewise xn
  };
  struct BackwardScratch {
    ForwardScratch again;
    Stored dxn, dq, dk, dqkv, dout, dh, du;
    Stored dy;  // the residual stream's gradient as a product's input; empty where formats are equal
  };
  // The micro-batch in work, and how its gradients are wanted.
  struct Pass {
    std::span<const Real> adapter;
    BatchView batch;
    bool keep;  // for backward
    std::span<float> grad;
    PassObserver* observer = nullptr;
    const LayerDone* layer_done = nullptr;
  };

  template <class Memory>
  Activations take_activations(Memory& memory, std::int64_t n_tokens, bool keep,
                               std::int64_t n_recomputed) const;
  template <class Memory>
  Layer take_layer(Memory& memory, std::int64_t n_tokens, bool keep) const;
  template <class Memory>
  ForwardScratch take_forward(Memory& memory, std::int64_t n_tokens) const;
  template <class Memory>
  LossScratch take_loss(Memory& memory, std::int64_t n_scored, bool keep) const;
  template <class Memory>
  BackwardScratch take_backward(Memory& memory, std::int64_t n_tokens) const;
  std::size_t pass_bytes(std::int64_t n_tokens, std::int64_t n_scored, bool keep,
                         std::int64_t n_recomputed) const;

  Layer& layer(const Pass& pass, std::int64_t l) {
    return acts_.layers[pass.keep ? static_cast<std::size_t>(l) : 0];
  }
  void forward(const Pass& pass);
  // next: the residual stream after the layer; none: it is not wanted (backward computes the layer again).
  void forward_layer(const Pass& pass, std::int64_t l, const ForwardScratch& s, Matrix next);
  void loss(const Pass& pass, std::span<float> nll);
  void backward(const Pass& pass);
  void mlp_backward(const Pass& pass, std::int64_t l, const BackwardScratch& s);
  void attention_layer_backward(const Pass& pass, std::int64_t l, const BackwardScratch& s);

  template <class Result>
  void multiply(MatrixView<Result> c, std::initializer_list<Term> terms) {
    product(ctx_, c, {}, std::span<const Term>(terms.begin(), terms.size()));
  }
  void adapters_in(const Pass& pass, std::int64_t l, Group group, ConstStored x, Stored u,
                   const ForwardScratch& s);
  template <class Result>
  void linear_forward(const Pass& pass, std::int64_t l, Group group, MatrixView<Result> y,
                      std::type_identity_t<MatrixView<const Result>> base, ConstStored x, Stored u,
                      const ForwardScratch& s);
  // Gradients of the group's adapters; dx [T, in] too where something below needs it.
  void linear_backward(const Pass& pass, std::int64_t l, Group group, Stored dx, ConstStored dy,
                       ConstStored x, ConstStored u, const BackwardScratch& s);
  // The residual stream's gradient as a product takes it.
  ConstStored residual_gradient(const BackwardScratch& s);
  bool drops(const Pass& pass) const { return dropout_.p > 0.0 && pass.keep; }
  // The mask of one adapted module of the layer's group.
  DropoutMask mask(const Pass& pass, std::int64_t l, Group group, std::size_t member) const;
  // Groups in order of computation; gradients flow down to the lowest with an adapter.
  static std::int64_t depth(std::int64_t l, Group group) { return l * kGroups + group; }
  RopeInputs rope_inputs(const Pass& pass, std::int64_t l) const;
  ConstStored values(const Layer& layer) const;  // the v columns of qkv

  const Context& ctx_;
  const ModelConfig& config_;
  const WeightViews<Real>& weights_;
  const LoraLayout& lora_;
  BatchLimits limits_;
  LoraDropout dropout_;
  std::vector<std::array<std::vector<RandomStream>, kGroups>> dropout_streams_;
  LayerShape shape_;
  std::int64_t n_recomputed_ = 0;
  float eps_;
  std::int64_t lowest_;
  std::int64_t widest_u_;
  BatchPlace<Context> place_;
  typename MemoryOf<Context>::Block rope_arena_, arena_;
  Matrix cos_, sin_;
  Activations acts_;
};

using Transformer = TransformerOn<CpuContext, float>;

}  // namespace tandem
