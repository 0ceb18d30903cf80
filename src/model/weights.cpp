#include "src/model/weights.hpp"

#include <algorithm>

#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

std::size_t Weights::bytes(const ModelConfig& config) {
  ArenaPlan plan;
  Weights(config, {}).lay_out(plan);
  return plan.bytes();
}

Weights::Weights(const ModelConfig& config, std::span<std::byte> memory) : config_(config) {
  if (memory.empty()) return;
  ArenaView view(memory, "model weights");
  lay_out(view);
}

template <class Memory>
std::span<float> Weights::place_vector(Memory& memory, const std::string& name, std::int64_t n) {
  const std::span<float> data = memory.template take<float>(n);
  places_.push_back({name, {n}, data});
  return data;
}

template <class Memory>
void Weights::lay_out(Memory& memory) {
  const LayerShape shape(config_);
  const std::int64_t c = config_.hidden, v = config_.vocab_size, d = config_.heads.head_dim;
  const auto table = [&](const char* name) {
    const std::span<float> data = memory.template take<float>(v * c);
    places_.push_back({name, {v, c}, data});
    return ConstMatrix(data.data(), v, c);
  };
  views_.embedding = table("model.embed_tokens.weight");
  views_.head = config_.tied_head ? views_.embedding : table("lm_head.weight");
  views_.final_norm = place_vector(memory, "model.norm.weight", c);
  views_.layers.clear();
  for (std::int64_t l = 0; l < config_.n_layers; ++l) {
    LayerWeights& layer = views_.layers.emplace_back();
    std::array<std::span<float>, kGroups> fused;
    for (std::size_t g = 0; g < kGroups; ++g) {
      fused[g] = memory.template take<float>(shape.out[g] * shape.in[g]);
      layer.fused[g] = ConstMatrix(fused[g].data(), shape.out[g], shape.in[g]);
    }
    std::span<float> bias;
    if (config_.qkv_bias) layer.qkv_bias = bias = memory.template take<float>(shape.out[kQkv]);
    const auto part = [](std::span<float> whole, std::int64_t begin, std::int64_t count) {
      return whole.empty() ? whole
                           : whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
    };
    for (const Module& module : shape.modules) {
      const std::int64_t in = shape.in[module.group];
      const std::string name = module_name(l, module);
      places_.push_back({name + ".weight",
                         {module.out(), in},
                         part(fused[module.group], module.row_begin * in, module.out() * in)});
      if (config_.qkv_bias && module.group == kQkv)
        places_.push_back({name + ".bias", {module.out()}, part(bias, module.row_begin, module.out())});
    }
    const std::string prefix = cat("model.layers.", l, ".");
    layer.input_norm = place_vector(memory, prefix + "input_layernorm.weight", c);
    layer.post_norm = place_vector(memory, prefix + "post_attention_layernorm.weight", c);
    if (config_.qk_norm) {
      layer.q_norm = place_vector(memory, prefix + "self_attn.q_norm.weight", d);
      layer.k_norm = place_vector(memory, prefix + "self_attn.k_norm.weight", d);
    }
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.name < b.name; });
}

std::string Weights::memory_digest(std::size_t i) const {
  return Sha256().update(std::span<const float>(places_[i].data)).hex();
}

// For weights_load.cpp.
template void Weights::lay_out(ArenaPlan&);

}  // namespace tandem
