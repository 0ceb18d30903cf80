#include "src/mirror/weights.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/sha256.hpp"
#include "src/mirror/check.hpp"
#include "src/mirror/json_file.hpp"

namespace tandem::mirror {
namespace {

constexpr const char* kHeadName = "lm_head.weight";
constexpr const char* kRotaryTable = "rotary_emb.inv_freq";  // in old files; computed here

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace

Matrix Weight::widen(Index first_row, Index n_rows) const {
  Matrix values(n_rows, cols());
  stored_->widen(first_row * cols(), values.size(), values.data());
  return values;
}

const Projection& projection(const LayerWeights& layer, const std::string& target) {
  if (target == "q") return layer.q;
  if (target == "k") return layer.k;
  if (target == "v") return layer.v;
  if (target == "o") return layer.o;
  if (target == "gate") return layer.gate;
  if (target == "up") return layer.up;
  check(target == "down", "no projection ", target);
  return layer.down;
}

Weights::Weights(const std::filesystem::path& folder, const Config& config) : folder_(folder) {
  open(folder);
  embedding_ =
      std::make_unique<Weight>(take("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) layers_.push_back(take_layer(layer, config));
  final_norm_ = take_row("model.norm.weight", config.hidden_size);
  take_head(config);
  refuse_unknown();
}

void Weights::open(const std::filesystem::path& folder) {
  const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    for (const auto& [name, tensor] : files_.back()->tensors()) stored_[name] = &tensor;
    return;
  }
  if (!std::filesystem::exists(index))
    throw Error(ErrorKind::kInput, cat(folder.string(), ": neither model.safetensors nor its index is here"));
  const auto json = read_json_file(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw Error(ErrorKind::kInput, cat(index.string(), ": no weight_map"));
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    const bool plain = shard.is_string() && shard.get<std::string>().find('/') == std::string::npos;
    if (!plain)
      throw Error(ErrorKind::kInput, cat(index.string(), ": `", name, "` lies in no file of the folder"));
    const SafetensorsFile*& file = shards[shard];
    if (!file) {
      files_.push_back(std::make_unique<SafetensorsFile>(folder / shard.get<std::string>()));
      file = files_.back().get();
    }
    const auto found = file->tensors().find(name);
    if (found == file->tensors().end())
      throw Error(ErrorKind::kInput, cat((folder / shard.get<std::string>()).string(), ": `", name,
                                         "` is not in it, though the index says so"));
    stored_[name] = &found->second;
  }
}

const StoredTensor& Weights::take(const std::string& name, std::vector<std::int64_t> shape) {
  const auto found = stored_.find(name);
  if (found == stored_.end())
    throw Error(ErrorKind::kInput, cat(folder_.string(), ": `", name, "` is missing"));
  const StoredTensor& tensor = *found->second;
  if (tensor.shape != shape)
    throw Error(ErrorKind::kInput,
                cat(folder_.string(), ": `", name, "` has shape ", shape_text(tensor.shape),
                    ", the configuration wants ", shape_text(shape)));
  if (tensor.dtype != "F32" && tensor.dtype != "BF16" && tensor.dtype != "F16")
    throw Error(ErrorKind::kInput, cat(folder_.string(), ": `", name, "` has dtype ", tensor.dtype,
                                       "; F32, BF16 and F16 are read"));
  used_[name] = &tensor;
  return tensor;
}

Row Weights::take_row(const std::string& name, std::int64_t n) {
  Row row(n);
  take(name, {n}).widen(0, n, row.data());
  return row;
}

LayerWeights Weights::take_layer(std::int64_t layer, const Config& config) {
  const std::string prefix = cat("model.layers.", layer, ".");
  const auto linear = [&](const char* name, std::int64_t out, std::int64_t in, bool bias) {
    const std::string module = prefix + name;
    return Projection{module, Weight(take(module + ".weight", {out, in})),
                      bias ? take_row(module + ".bias", out) : Row()};
  };
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  const bool bias = config.qkv_bias();
  const auto head_norm = [&](const char* name) {
    return config.qk_norm() ? take_row(prefix + name, config.head_dim) : Row();
  };
  return {take_row(prefix + "input_layernorm.weight", hidden),
          take_row(prefix + "post_attention_layernorm.weight", hidden),
          head_norm("self_attn.q_norm.weight"),
          head_norm("self_attn.k_norm.weight"),
          linear("self_attn.q_proj", queries, hidden, bias),
          linear("self_attn.k_proj", keys, hidden, bias),
          linear("self_attn.v_proj", keys, hidden, bias),
          linear("self_attn.o_proj", hidden, queries, false),
          linear("mlp.gate_proj", inner, hidden, false),
          linear("mlp.up_proj", inner, hidden, false),
          linear("mlp.down_proj", hidden, inner, false)};
}

void Weights::take_head(const Config& config) {
  if (!config.tied_head) {
    head_ = std::make_unique<Weight>(take(kHeadName, {config.vocab_size, config.hidden_size}));
    return;
  }
  head_ = std::make_unique<Weight>(*embedding_);
  const auto stored = stored_.find(kHeadName);
  if (stored == stored_.end()) return;
  const StoredTensor& embedding = *used_.at("model.embed_tokens.weight");
  const StoredTensor& other = *stored->second;
  if (other.dtype != embedding.dtype || other.shape != embedding.shape ||
      !std::equal(other.bytes.begin(), other.bytes.end(), embedding.bytes.begin(), embedding.bytes.end()))
    warnings_.push_back(cat(folder_.string(), ": the head is tied to the embedding, so `", kHeadName,
                            "`, which differs from it, is not used"));
}

void Weights::refuse_unknown() const {
  for (const auto& [name, tensor] : stored_)
    if (!used_.count(name) && name != kHeadName && name.find(kRotaryTable) == std::string::npos)
      throw Error(ErrorKind::kInput,
                  cat(folder_.string(), ": `", name, "` is no tensor of this kind of model"));
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : used_) names.push_back(name);
  return names;
}

const StoredTensor& Weights::stored(const std::string& name) const {
  const auto found = used_.find(name);
  check(found != used_.end(), "no tensor ", name);
  return *found->second;
}

namespace {

// The values of a tensor, a piece at a time.
template <class Visit>
void visit_values(const StoredTensor& tensor, Visit&& visit) {
  constexpr std::int64_t kChunk = 1 << 16;
  std::vector<double> values(static_cast<std::size_t>(kChunk));
  const std::int64_t n = tensor.elements();
  for (std::int64_t first = 0; first < n; first += kChunk) {
    const std::int64_t count = std::min(kChunk, n - first);
    tensor.widen(first, count, values.data());
    visit(Eigen::Map<const Column>(values.data(), count));
  }
}

}  // namespace

LoadedTensor Weights::describe(const std::string& name) const {
  const StoredTensor& tensor = stored(name);
  double sum = 0, squares = 0;
  visit_values(tensor, [&](const auto& values) {
    sum += values.sum();
    squares += values.squaredNorm();
  });
  const auto count = static_cast<double>(tensor.elements());
  return {name,        Sha256().update(tensor.bytes).hex(), tensor.dtype, tensor.shape,
          sum / count, std::sqrt(squares / count)};
}

std::string Weights::memory_digest(const std::string& name) const {
  Sha256 digest;
  std::vector<float> floats;
  visit_values(stored(name), [&](const auto& values) {
    floats.assign(values.begin(), values.end());  // exact: the file's dtype is no wider
    digest.update(std::span<const float>(floats));
  });
  return digest.hex();
}

}  // namespace tandem::mirror
