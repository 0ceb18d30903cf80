// Small random models, rows and specs in a folder of their own, for tests of the mirror; nothing of native's.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/sha256.hpp"
#include "src/mirror/digests.hpp"
#include "src/mirror/mirror.hpp"
#include "src/mirror/random.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem::mirror {

struct TinyTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline void write_safetensors(const std::filesystem::path& file,
                              const std::map<std::string, TinyTensor>& tensors, bool bf16 = false) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    for (const float value : tensor.values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const auto* bytes = reinterpret_cast<const char*>(&bits);
      data.append(bf16 ? bytes + 2 : bytes, bf16 ? 2 : 4);
    }
    header[name] = {
        {"dtype", bf16 ? "BF16" : "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  support::write_text(file, bytes + text + data);
}

// Uniform in (-size, size).
inline TinyTensor random_tensor(const std::string& name, std::vector<std::int64_t> shape, double size,
                                double center = 0) {
  TinyTensor tensor{std::move(shape), {}};
  std::int64_t n = 1;
  for (const std::int64_t extent : tensor.shape) n *= extent;
  const Draws draws(3, name);
  for (std::int64_t i = 0; i < n; ++i)
    tensor.values.push_back(
        static_cast<float>(center + size * (2 * unit(draws(static_cast<std::uint64_t>(i))) - 1)));
  return tensor;
}

// qwen3 (tied, norms of q and k), qwen2 (biases, tied), llama (untied, head_dim unlike hidden/heads) or
// llama3 (with its rope scaling).
inline nlohmann::json tiny_config(const std::string& kind) {
  nlohmann::json config = {{"model_type", kind == "llama3" ? "llama" : kind},
                           {"hidden_size", 12},
                           {"intermediate_size", 20},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"vocab_size", 40},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 500.0},
                           {"max_position_embeddings", 4096},
                           {"tie_word_embeddings", kind == "qwen3" || kind == "qwen2"}};
  if (kind != "qwen2") config["head_dim"] = kind == "qwen3" ? 6 : 4;
  if (kind == "qwen2") config["num_attention_heads"] = 2;
  if (kind == "llama3")
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8}};
  return config;
}

inline std::map<std::string, TinyTensor> tiny_tensors(const nlohmann::json& config) {
  const std::int64_t hidden = config["hidden_size"], inner = config["intermediate_size"],
                     vocab = config["vocab_size"], heads = config["num_attention_heads"],
                     kv_heads = config["num_key_value_heads"];
  const std::int64_t d = config.value("head_dim", hidden / heads);
  std::map<std::string, TinyTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, double size,
                       double center = 0) {
    tensors[name] = random_tensor(name, std::move(shape), size, center);
  };
  add("model.embed_tokens.weight", {vocab, hidden}, 1.0);
  add("model.norm.weight", {hidden}, 0.3, 1);
  if (!config["tie_word_embeddings"]) add("lm_head.weight", {vocab, hidden}, 1.0);
  for (int layer = 0; layer < config["num_hidden_layers"]; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    add(at + "input_layernorm.weight", {hidden}, 0.3, 1);
    add(at + "post_attention_layernorm.weight", {hidden}, 0.3, 1);
    add(at + "self_attn.q_proj.weight", {heads * d, hidden}, 0.5);
    add(at + "self_attn.k_proj.weight", {kv_heads * d, hidden}, 0.5);
    add(at + "self_attn.v_proj.weight", {kv_heads * d, hidden}, 0.5);
    add(at + "self_attn.o_proj.weight", {hidden, heads * d}, 0.5);
    add(at + "mlp.gate_proj.weight", {inner, hidden}, 0.5);
    add(at + "mlp.up_proj.weight", {inner, hidden}, 0.5);
    add(at + "mlp.down_proj.weight", {hidden, inner}, 0.5);
    if (config["model_type"] == "qwen3")
      for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
        add(at + norm, {d}, 0.3, 1);
    if (config["model_type"] == "qwen2")
      for (const auto& [name, n] :
           {std::pair("q", heads), std::pair("k", kv_heads), std::pair("v", kv_heads)})
        add(at + "self_attn." + name + "_proj.bias", {n * d}, 0.5);
  }
  return tensors;
}

inline std::filesystem::path make_tiny(const support::TempFolder& folder, const std::string& kind,
                                       bool bf16 = false) {
  const auto model = folder / ("model-" + kind);
  std::filesystem::create_directories(model);
  const auto config = tiny_config(kind);
  support::write_text(model / "config.json", config.dump());
  write_safetensors(model / "model.safetensors", tiny_tensors(config), bf16);
  return model;
}

// Tokenised rows; the last `targets[i]` ids of row i are scored.
inline std::filesystem::path make_rows(const support::TempFolder& folder, const std::string& name,
                                       const std::vector<int>& lengths, const std::vector<int>& targets,
                                       std::int64_t vocab = 40) {
  std::string text;
  const Draws draws(5, name);
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    nlohmann::json row;
    for (int p = 0; p < lengths[i]; ++p) {
      row["ids"].push_back(draws(n++) % static_cast<std::uint64_t>(vocab));
      row["targets"].push_back(p >= lengths[i] - targets[i] ? 1 : 0);
    }
    text += row.dump() + "\n";
  }
  support::write_text(folder / name, text);
  return folder / name;
}

// A canonical text with these inputs and the defaults of SPEC.md but for what `keys` says.
inline std::string tiny_spec(const Inputs& inputs, const std::map<std::string, std::string>& keys = {}) {
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  std::map<std::string, std::string> all = {
      {"batch.global", "4"},
      {"data.held_out", inputs.held_out ? quoted(sha256_file(*inputs.held_out)) : "none"},
      {"data.max_tokens", "1024"},
      {"data.special_in_text", quoted("encode")},
      {"data.targets", quoted("all")},
      {"data.template", quoted("auto")},
      {"data.train", quoted(sha256_file(inputs.train))},
      {"data.truncate", quoted("right")},
      {"eval.every", "1"},
      {"lora.alpha", "3.0"},
      {"lora.dropout", "0.0"},
      {"lora.init", inputs.lora_init ? quoted(peft_digest(*inputs.lora_init)) : "none"},
      {"lora.rank", "2"},
      {"lora.rslora", "false"},
      {"lora.targets", quoted("q,k,v,o,gate,up,down")},
      {"model.path", quoted(model_digest(inputs.model))},
      {"optim.beta1", "0.9"},
      {"optim.beta2", "0.999"},
      {"optim.clip", "1.0"},
      {"optim.eps", "1e-08"},
      {"optim.lr", "0.01"},
      {"optim.lr_min", "0.0"},
      {"optim.schedule", quoted("cosine")},
      {"optim.warmup", "1"},
      {"optim.weight_decay", "0.0"},
      {"seed.adapter", "1"},
      {"seed.dropout", "2"},
      {"seed.order", "3"},
      {"train.updates", "6"}};
  for (const auto& [key, value] : keys) all[key] = value;
  std::string text;
  for (const auto& [key, value] : all) text += key + " = " + value + "\n";
  return text;
}

// An adapter whose B is not zero, so that every gradient is other than zero.
inline Tensors random_adapter(const Mirror& mirror, double size = 0.5) {
  Tensors adapter;
  for (const AdapterTensor& tensor : mirror.adapter_tensors()) {
    const auto values = random_tensor(tensor.name, {tensor.rows, tensor.columns}, size).values;
    adapter.emplace_back(values.begin(), values.end());
  }
  return adapter;
}

}  // namespace tandem::mirror
