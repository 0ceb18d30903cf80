// The models: a decoder of pre-normalised layers (Llama: Touvron et al. 2023, section 2.2; Qwen3 technical
// report 2025, section 2; Qwen2 technical report 2024, section 2.2) with low-rank adapters. One sample at a
// time; each layer is recomputed for its gradient (Chen et al. 2016), so only the layers' inputs are kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "src/mirror/config.hpp"
#include "src/mirror/differentiable.hpp"
#include "src/mirror/lora.hpp"
#include "src/mirror/mirror.hpp"
#include "src/mirror/weights.hpp"

namespace tandem::mirror {

// Which elements of A's input a training pass drops (SPEC.md, "lora.dropout").
struct Dropout {
  double p;
  std::uint64_t seed, update, sample;
  Matrix mask(const std::string& module, Index tokens, Index channels) const;  // 0 or 1/(1-p)
};

class Transformer {
 public:
  // All of them must outlive it. cancelled: looked at between layers; an exception ends the pass once it is
  // true.
  Transformer(const Config& config, const Weights& weights, const Lora& lora,
              const std::atomic<bool>* cancelled = nullptr);

  struct Pass {
    const Tensors* adapter = nullptr;  // nullptr: off
    std::optional<Dropout> dropout;
    std::optional<Rounding> rounding;
  };
  using OnLayer = std::function<void(std::int64_t layer, const Matrix& residual)>;

  // The residual stream [T, hidden] after the last layer; `on_layer` sees it after each.
  Matrix residual(std::span<const std::int32_t> ids, const Pass& pass,
                  const OnLayer& on_layer = nullptr) const;
  // The final norm of those rows of the residual that predict `scored`: row p - 1 for position p.
  Matrix predictors(const Matrix& residual, const std::vector<std::int64_t>& scored) const;

  // nll of each position in `scored` (>= 1), predicted by the one before.
  Column nll(std::span<const std::int32_t> ids, const std::vector<std::int64_t>& scored,
             const Pass& pass) const;
  // Also adds the gradient of their sum to `gradient`, and each tensor's Tape::term_squares to
  // `term_squares`.
  Column nll_with_gradient(std::span<const std::int32_t> ids, const std::vector<std::int64_t>& scored,
                           const Pass& pass, Tensors& gradient, std::vector<double>& term_squares) const;

 private:
  class LayerPass;
  void go_on() const;
  Matrix embed(std::span<const std::int32_t> ids) const;
  Matrix forward(std::span<const std::int32_t> ids, const Pass& pass, const OnLayer& on_layer,
                 std::vector<Matrix>* inputs) const;
  Var loss(Var residual, std::span<const std::int32_t> ids, const std::vector<std::int64_t>& scored) const;

  const Config& config_;
  const Weights& weights_;
  const Lora& lora_;
  const std::atomic<bool>* cancelled_;
  std::vector<double> frequencies_;
};

}  // namespace tandem::mirror
