#include "src/model/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "io/safetensors.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

SafetensorsFile open_weights(const std::filesystem::path& model_dir) {
  const auto file = model_dir / "model.safetensors";
  if (!std::filesystem::exists(file) && std::filesystem::exists(model_dir / "model.safetensors.index.json"))
    throw Error(ErrorKind::kInput, cat(model_dir.string(), ": the weights lie in several files (shards); only a single "
                                                           "model.safetensors is supported so far"));
  return SafetensorsFile(file);
}

// Copies one tensor of the file into its place and notes what was read.
class Loader {
 public:
  Loader(const SafetensorsFile& file, std::vector<LoadRow>& rows) : file_(file), rows_(rows) {}

  void load(const std::string& name, std::vector<std::int64_t> shape, std::span<float> place) {
    const TensorRecord& record = file_.require(name, shape);
    widen_to_f32(record, place);
    double sum = 0.0, squares = 0.0;
    for (const float value : place) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (!std::isfinite(squares))
      throw Error(ErrorKind::kInput, cat(file_.path().string(), ": tensor ", name, " has NaN or infinite values"));
    const double n = std::max<double>(1.0, static_cast<double>(place.size()));
    rows_.push_back({name, Sha256().update(record.data).hex(), std::move(shape), record.dtype_name, sum / n,
                     std::sqrt(squares / n)});
    used_.insert(name);
  }
  void ignore(const std::string& name) { used_.insert(name); }

  void refuse_the_rest() const {
    for (const TensorRecord& tensor : file_.tensors())
      if (!used_.count(tensor.name) && tensor.name.find("rotary_emb.inv_freq") == std::string::npos)
        throw Error(ErrorKind::kInput, cat(file_.path().string(), ": tensor ", tensor.name,
                                           " is not part of this model; its config.json does not say what to do with it"));
  }

 private:
  const SafetensorsFile& file_;
  std::vector<LoadRow>& rows_;
  std::set<std::string> used_;
};

constexpr const char* kHead = "lm_head.weight";

}  // namespace

Weights::Weights(const std::filesystem::path& model_dir, const ModelConfig& config) {
  const SafetensorsFile file = open_weights(model_dir);
  const LayerShape shape(config);
  const std::int64_t c = config.hidden, v = config.vocab_size, d = config.heads.head_dim;

  ArenaPlan plan;
  plan.take<float>(v * c);
  if (!config.tied_head) plan.take<float>(v * c);
  plan.take<float>(c);
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    for (int g = 0; g < kGroups; ++g)
      plan.take<float>(shape.out[static_cast<std::size_t>(g)] * shape.in[static_cast<std::size_t>(g)]);
    plan.take<float>(c);
    plan.take<float>(c);
    if (config.qk_norm) plan.take<float>(d), plan.take<float>(d);
  }
  arena_ = Arena(plan.bytes(), "model weights");

  Loader loader(file, load_rows_);
  const std::span<float> embedding = arena_.take<float>(v * c);
  loader.load("model.embed_tokens.weight", {v, c}, embedding);
  embedding_ = head_ = ConstMatrix(embedding.data(), v, c);
  if (!config.tied_head) {
    const std::span<float> head = arena_.take<float>(v * c);
    loader.load(kHead, {v, c}, head);
    head_ = ConstMatrix(head.data(), v, c);
  } else if (const TensorRecord* stored = file.find(kHead)) {
    loader.ignore(kHead);
    const TensorRecord* used = file.find("model.embed_tokens.weight");
    if (stored->dtype != used->dtype || stored->shape != used->shape ||
        std::memcmp(stored->data.data(), used->data.data(), used->data.size()) != 0)
      warnings_.push_back(cat(file.path().string(), ": ", kHead,
                              " differs from the embedding and is ignored: config.json ties the head to the embedding"));
  }
  const auto load_vector = [&](const std::string& name, std::int64_t n) {
    const std::span<float> place = arena_.take<float>(n);
    loader.load(name, {n}, place);
    return std::span<const float>(place);
  };
  final_norm_ = load_vector("model.norm.weight", c);
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    LayerWeights layer;
    std::array<std::span<float>, kGroups> fused;
    for (std::size_t g = 0; g < kGroups; ++g) {
      fused[g] = arena_.take<float>(shape.out[g] * shape.in[g]);
      layer.fused[g] = ConstMatrix(fused[g].data(), shape.out[g], shape.in[g]);
    }
    for (const Module& module : shape.modules) {
      const std::int64_t in = shape.in[module.group];
      loader.load(module_name(l, module) + ".weight", {module.out(), in},
                  fused[module.group].subspan(static_cast<std::size_t>(module.row_begin * in),
                                              static_cast<std::size_t>(module.out() * in)));
    }
    const std::string prefix = cat("model.layers.", l, ".");
    layer.input_norm = load_vector(prefix + "input_layernorm.weight", c);
    layer.post_norm = load_vector(prefix + "post_attention_layernorm.weight", c);
    if (config.qk_norm) {
      layer.q_norm = load_vector(prefix + "self_attn.q_norm.weight", d);
      layer.k_norm = load_vector(prefix + "self_attn.k_norm.weight", d);
    }
    layers_.push_back(layer);
  }
  loader.refuse_the_rest();
  std::sort(load_rows_.begin(), load_rows_.end(),
            [](const LoadRow& a, const LoadRow& b) { return a.name < b.name; });
}

}  // namespace tandem
