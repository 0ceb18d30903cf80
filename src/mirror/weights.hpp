// A model's weights: mapped, in the file's dtype, widened one matrix at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/mirror/config.hpp"
#include "src/mirror/differentiable.hpp"
#include "src/mirror/mirror.hpp"
#include "src/mirror/safetensors.hpp"

namespace tandem::mirror {

class Weight : public FrozenMatrix {
 public:
  explicit Weight(const StoredTensor& stored) : stored_(&stored) {}
  Index rows() const override { return stored_->shape[0]; }
  Index cols() const override { return stored_->shape[1]; }
  using FrozenMatrix::widen;
  Matrix widen(Index first_row, Index n_rows) const override;

 private:
  const StoredTensor* stored_;
};

struct Projection {
  std::string module;  // model.layers.0.self_attn.q_proj
  Weight weight;       // [out, in]
  Row bias;            // empty: none
};

struct LayerWeights {
  Row input_norm, post_attention_norm;
  Row q_norm, k_norm;  // empty: none
  Projection q, k, v, o, gate, up, down;
};

// The seven projections by the names that lora.targets uses.
const Projection& projection(const LayerWeights& layer, const std::string& target);

class Weights {
 public:
  // kInput for a tensor that is missing, unknown, or not of the shape that the configuration gives it.
  Weights(const std::filesystem::path& folder, const Config& config);

  const Weight& embedding() const { return *embedding_; }
  const Weight& head() const { return *head_; }  // the embedding where tied
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const Row& final_norm() const { return final_norm_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  std::vector<std::string> names() const;
  LoadedTensor describe(const std::string& name) const;
  std::string memory_digest(const std::string& name) const;

 private:
  const StoredTensor& stored(const std::string& name) const;
  void open(const std::filesystem::path& folder);
  const StoredTensor& take(const std::string& name, std::vector<std::int64_t> shape);
  Row take_row(const std::string& name, std::int64_t n);
  LayerWeights take_layer(std::int64_t layer, const Config& config);
  void take_head(const Config& config);
  void refuse_unknown() const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*> stored_, used_;
  std::unique_ptr<Weight> embedding_, head_;
  std::vector<LayerWeights> layers_;
  Row final_norm_;
  std::vector<std::string> warnings_;
};

}  // namespace tandem::mirror
