// The frozen base weights, widened to float32 and fused: q, k, v in one matrix, gate and up in one.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/model_tensors.hpp"
#include "io/trajectory.hpp"
#include "src/base/arena.hpp"
#include "src/base/matrix.hpp"
#include "src/model/config.hpp"
#include "src/model/modules.hpp"

namespace tandem {

// Where the weights lie: matrices in the format that products are computed in, the rest in float32.
template <class Real>
struct LayerWeightsOf {
  std::array<MatrixView<const Real>, kGroups> fused;  // [out, in] of LayerShape
  std::span<const float> input_norm, post_norm;       // [C]
  std::span<const float> q_norm, k_norm;              // [D], empty without qk_norm
  std::span<const float> qkv_bias;                    // [(H+2K)D], empty without qkv_bias
};
using LayerWeights = LayerWeightsOf<float>;

template <class Real>
struct WeightViews {
  MatrixView<const Real> embedding, head;  // [V, C]; the head is the embedding itself where tied
  std::span<const float> final_norm;       // [C]
  std::vector<LayerWeightsOf<Real>> layers;

  const LayerWeightsOf<Real>& layer(std::int64_t l) const { return layers[static_cast<std::size_t>(l)]; }
};

class Weights {
 public:
  // The memory that the weights of a model take.
  static std::size_t bytes(const ModelConfig& config);

  // Views of weights in `memory` of that size, which must outlive this object; another process may fill it.
  Weights(const ModelConfig& config, std::span<std::byte> memory);

  // That the files hold a model of this configuration: every tensor it needs must be there, once, with its
  // shape and a dtype that is computed with; any other is refused (rotary_emb.inv_freq is ignored, and a
  // stored head of a tied model with a warning where it differs from the embedding). Looks at no other
  // values. Returns warnings. Throws kInput: file and tensor.
  static std::vector<std::string> check(const ModelConfig& config, const ModelTensors& tensors);

  // Fills the memory, after check(). Throws kInput, naming the element, where a value is not finite.
  void load(const ModelTensors& tensors);

  const ModelConfig& config() const { return config_; }
  const WeightViews<float>& views() const { return views_; }
  ConstMatrix embedding() const { return views_.embedding; }
  ConstMatrix head() const { return views_.head; }
  std::span<const float> final_norm() const { return views_.final_norm; }
  const LayerWeights& layer(std::int64_t l) const { return views_.layer(l); }

  // Level 2: every tensor as read, in order of its name; empty where another process has loaded them.
  const std::vector<LoadRow>& load_rows() const { return load_rows_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // SHA-256 of a tensor as it lies in memory now, its float32 values in the file's shape; i is its row in
  // order of the names, as in load_rows() (/load/memory).
  std::string memory_digest(std::size_t i) const;
  std::size_t n_tensors() const { return places_.size(); }
  const std::string& tensor_name(std::size_t i) const { return places_[i].name; }
  std::span<const float> tensor(std::size_t i) const { return places_[i].data; }

 private:
  struct Place {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<float> data;
  };
  std::vector<std::string> check(const ModelTensors& tensors) const;
  template <class Memory>
  void lay_out(Memory& memory);
  template <class Memory>
  std::span<float> place_vector(Memory& memory, const std::string& name, std::int64_t n);

  ModelConfig config_;
  std::vector<Place> places_;  // where each tensor of the file goes, in order of their names
  WeightViews<float> views_;
  std::vector<LoadRow> load_rows_;
  std::vector<std::string> warnings_;
};

}  // namespace tandem
