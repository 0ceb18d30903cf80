#include "src/model/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// The tensor's values in `place`; what was read.
LoadRow read_tensor(const ModelTensors& tensors, const std::string& name,
                    const std::vector<std::int64_t>& shape, std::span<float> place) {
  const TensorRecord& record = tensors.require(name, shape);
  widen_to_f32(record, place);
  double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum, squares)
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto value = static_cast<double>(place[i]);
    sum += value;
    squares += value * value;
  }
  if (!std::isfinite(squares)) require_finite(tensors.file_of(name), record, 0, place);
  const double n = std::max<double>(1.0, static_cast<double>(place.size()));
  LoadRow row{
      name, Sha256().update(record.data).hex(), shape, record.dtype_name, sum / n, std::sqrt(squares / n)};
  drop_pages(record);
  return row;
}

// A planted fault: a square tensor taken for one stored by columns.
void transpose(std::span<float> square, std::int64_t n) {
  const Matrix m(square.data(), n, n);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < r; ++c) std::swap(m.row(r)[c], m.row(c)[r]);
}

// Takes a tied model's stored head, which nothing reads, as part of the model.
bool is_ignored_head(const std::string& name, const ModelConfig& config) {
  return config.tied_head && name == kHead;
}

}  // namespace

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
  views_.embedding = table(kEmbedding);
  views_.head = config_.tied_head ? views_.embedding : table(kHead);
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

std::vector<std::string> Weights::check(const ModelConfig& config, const ModelTensors& tensors) {
  ArenaPlan plan;
  Weights weights(config, {});
  weights.lay_out(plan);
  return weights.check(tensors);
}

std::vector<std::string> Weights::check(const ModelTensors& tensors) const {
  std::set<std::string> used;
  for (const Place& place : places_) {
    tensors.require(place.name, place.shape);
    used.insert(place.name);
  }
  for (const std::string& name : tensors.names()) {
    if (used.count(name) || is_ignored_head(name, config_) ||
        name.find("rotary_emb.inv_freq") != std::string::npos)
      continue;
    throw Error(ErrorKind::kInput,
                cat(tensors.file_of(name).string(), ": tensor ", name,
                    " is not part of this model; its config.json does not say what to do with it"));
  }
  std::vector<std::string> warnings;
  if (const TensorRecord* stored = tensors.find(kHead); stored && config_.tied_head) {
    const TensorRecord* embedding = tensors.find(kEmbedding);
    if (stored->dtype_name != embedding->dtype_name || stored->shape != embedding->shape ||
        std::memcmp(stored->data.data(), embedding->data.data(), embedding->data.size()) != 0) {
      if (stored->dtype) require_finite(tensors.file_of(kHead), *stored);
      warnings.push_back(
          cat(tensors.file_of(kHead).string(), ": ", kHead,
              " differs from the embedding and is ignored: config.json ties the head to the embedding"));
    }
  }
  for (const std::string& file : tensors.ignored_files())
    warnings.push_back(cat(file, " lies in the model's folder and is not part of the model"));
  return warnings;
}

void Weights::load(const ModelTensors& tensors) {
  warnings_ = check(tensors);
  for (const Place& place : places_) {
    load_rows_.push_back(read_tensor(tensors, place.name, place.shape, place.data));
    if (planted("transposed_tensor") && place.name.ends_with("layers.0.self_attn.o_proj.weight"))
      transpose(place.data, place.shape[0]);
  }
}

}  // namespace tandem
