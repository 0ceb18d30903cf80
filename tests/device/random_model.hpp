// A model of random weights and its rows, by a seed: no files.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/samples.hpp"
#include "src/base/arena.hpp"
#include "src/base/dtype.hpp"
#include "src/base/random.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"
#include "src/model/weights.hpp"

namespace tandem::testing {

inline const std::vector<std::string> kAllModules = {"q", "k", "v", "o", "gate", "up", "down"};

inline ModelConfig qwen3_like(std::int64_t layers, std::int64_t hidden, std::int64_t intermediate,
                              const HeadShape& heads, std::int64_t vocab) {
  ModelConfig c;
  c.model_type = "qwen3";
  c.vocab_size = vocab, c.hidden = hidden, c.intermediate = intermediate, c.n_layers = layers;
  c.heads = heads;
  c.max_positions = 4096;
  c.rope_theta = 1e6;
  c.qk_norm = c.tied_head = true;
  return c;
}

// Values of bfloat16: matrices of variance 1 / inputs, norms' weights about 1. `perturbation` multiplies each
// element of the matrices by 1 +- itself, signs by `draw`.
class RandomModel {
 public:
  explicit RandomModel(const ModelConfig& config, double perturbation = 0.0, std::uint64_t draw = 0)
      : config_(config), memory_(Weights::bytes(config), "weights"), weights_(config, memory_.block()) {
    for (std::size_t i = 0; i < weights_.n_tensors(); ++i) {
      const std::string& name = weights_.tensor_name(i);
      const std::span<const float> place = weights_.tensor(i);
      // The tensor lies in memory_, which is this object's.
      const std::span<float> tensor(const_cast<float*>(place.data()), place.size());
      const bool norm = name.ends_with("norm.weight");
      const RandomStream stream(7, name), signs(draw, name);
      const double scale = norm ? 0.25 : std::sqrt(3.0 / static_cast<double>(columns(name)));
#pragma omp parallel for
      for (std::size_t k = 0; k < tensor.size(); ++k) {
        const double drawn = scale * (2.0 * stream.unit(k) - 1.0) + (norm ? 1.0 : 0.0);
        const double sign = (signs.draw(k) & 1) != 0 ? 1.0 : -1.0;
        tensor[k] = bf16_to_f32(f64_to_bf16(drawn));
        if (!norm && perturbation > 0.0)
          tensor[k] = static_cast<float>(static_cast<double>(tensor[k]) * (1.0 + perturbation * sign));
      }
    }
  }
  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }

 private:
  std::int64_t columns(const std::string& name) const {
    if (name.find("o_proj") != std::string::npos) return config_.heads.q_cols();
    return name.find("down_proj") != std::string::npos ? config_.intermediate : config_.hidden;
  }

  ModelConfig config_;
  Arena memory_;
  Weights weights_;
};

// A and B both drawn, so that every gradient is there. Values of bfloat16.
inline std::vector<float> random_adapter(const LoraLayout& lora) {
  std::vector<float> flat(static_cast<std::size_t>(lora.size()), 0.0f);
  for (const LoraTensor& tensor : lora.tensors()) {
    const RandomStream stream(11, tensor.name);
    const double scale = std::sqrt(3.0 / static_cast<double>(tensor.cols)) * 0.5;
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      flat[static_cast<std::size_t>(tensor.offset + i)] =
          bf16_to_f32(f64_to_bf16(scale * (2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0)));
  }
  return flat;
}

// Samples of these lengths; every token is scored where `all`, else the later half.
inline SampleSet random_samples(const std::vector<std::int64_t>& lengths, std::int64_t vocab, bool all) {
  SampleSet samples;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> marks;
    for (std::int64_t p = 0; p < lengths[s]; ++p) {
      ids.push_back(static_cast<std::int32_t>(splitmix64(s << 32 | static_cast<std::uint64_t>(p)) %
                                              static_cast<std::uint64_t>(vocab)));
      marks.push_back(all || p >= lengths[s] / 2);
    }
    samples.add(ids, marks, static_cast<std::int64_t>(s) + 1);
  }
  return samples;
}

}  // namespace tandem::testing
