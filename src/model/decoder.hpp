// One conversation token by token: the forward pass with the keys and values of earlier tokens kept.
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
#include "src/model/weights.hpp"

namespace tandem {

// Deterministic; the logits are those of Transformer up to the rounding of other products' shapes.
class Decoder {
 public:
  // capacity: tokens that a conversation can have. adapter: flat array of `lora`, or empty: the base model
  // alone. The references must outlive this object. Throws kDevice where the memory is not to be had.
  Decoder(const CpuContext& ctx, const ModelConfig& config, const Weights& weights, const LoraLayout& lora,
          std::span<const float> adapter, std::int64_t capacity);

  std::int64_t capacity() const { return capacity_; }
  std::int64_t length() const { return length_; }

  // Forgets what came before; the logits [V] that predict the token after the last of `ids`, valid until the
  // next call. ids: at least one, at most capacity(), each in [0, V).
  std::span<const float> prefill(std::span<const std::int32_t> ids);
  // Adds one token.
  std::span<const float> step(std::int32_t id) { return extend({&id, 1}); }

 private:
  // Tokens at a time: bounds the memory beside the cache.
  static constexpr std::int64_t kChunk = 256;

  struct Cache {
    Matrix k, v;  // [capacity, K*D]
  };
  struct Scratch {
    Matrix x, xn, qkv, q, o, gu, h, u;  // [T, ...], u [T, r*members] of the widest group
    Matrix last;                        // [1, C]
    Matrix logits;                      // [1, V]
  };
  template <class Memory>
  void lay_out(Memory& memory);

  std::span<const float> extend(std::span<const std::int32_t> ids);
  void forward(std::span<const std::int32_t> ids);
  void layer(std::int64_t l, const Scratch& s);
  void linear(std::int64_t l, Group group, Matrix y, ConstMatrix base, ConstMatrix x, Matrix u);
  // The first t rows of all.
  Scratch rows(std::int64_t t) const;

  const CpuContext& ctx_;
  const ModelConfig& config_;
  const Weights& weights_;
  const LoraLayout& lora_;
  std::span<const float> adapter_;
  LayerShape shape_;
  float eps_;
  std::int64_t capacity_, length_ = 0;
  Arena arena_;
  Matrix cos_, sin_;
  std::vector<Cache> cache_;
  Scratch scratch_;
  std::vector<std::int32_t> position_;
};

// The id of the largest logit, the lowest of equals. Throws kInternal where they are not all numbers.
std::int32_t greedy_token(std::span<const float> logits);

}  // namespace tandem
