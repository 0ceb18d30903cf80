#include "src/cli/model_shape.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/rope.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// Small enough for seconds, with every trait that a shape can have: grouped heads, head_dim * heads !=
// hidden, sizes that are no powers of two. A wider spread of the weights than the large models': 64 channels
// of std 0.02 could not move the logits, and no adapter could learn anything.
ModelShape make_tiny() {
  return ModelShape{.type = "qwen3",
                    .hidden = 64,
                    .layers = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 32,
                    .intermediate = 160,
                    .vocab = 0,
                    .max_positions = 4096,
                    .rope_theta = 1e6,
                    .rms_eps = 1e-6,
                    .init_std = 0.0,
                    .tied = true,
                    .dtype = DType::kF32};
}

// The published config.json of HuggingFaceTB/SmolLM2-135M-Instruct.
ModelShape make_smollm2() {
  return ModelShape{.type = "llama",
                    .hidden = 576,
                    .layers = 30,
                    .heads = 9,
                    .kv_heads = 3,
                    .head_dim = 64,
                    .intermediate = 1536,
                    .vocab = 49152,
                    .max_positions = 8192,
                    .rope_theta = 1e5,
                    .rms_eps = 1e-5,
                    .init_std = 0.041666666666666664,
                    .tied = true,
                    .dtype = DType::kBF16};
}

// The published config.json of Qwen/Qwen3-0.6B.
ModelShape make_qwen3() {
  return ModelShape{.type = "qwen3",
                    .hidden = 1024,
                    .layers = 28,
                    .heads = 16,
                    .kv_heads = 8,
                    .head_dim = 128,
                    .intermediate = 3072,
                    .vocab = 151936,
                    .max_positions = 40960,
                    .rope_theta = 1e6,
                    .rms_eps = 1e-6,
                    .init_std = 0.02,
                    .tied = true,
                    .dtype = DType::kBF16};
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "init-model: " + what); }

}  // namespace

ModelShape preset_shape(const std::string& name) {
  if (name == "tiny") return make_tiny();
  if (name == "smollm2-135m") return make_smollm2();
  if (name == "qwen3-0.6b") return make_qwen3();
  refuse(cat("unknown preset '", name, "'; there are tiny, smollm2-135m, qwen3-0.6b"));
}

void check_shape(const ModelShape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"hidden", shape.hidden},     {"layers", shape.layers},     {"heads", shape.heads},
      {"kv-heads", shape.kv_heads}, {"head-dim", shape.head_dim}, {"intermediate", shape.intermediate},
      {"vocab", shape.vocab}};
  for (const auto& [name, size] : sizes)
    if (size < 1 || size > kMost) refuse(cat("--", name, " ", size, " is not in 1 to ", kMost));
  constexpr std::int64_t kMostLayers = 4096;
  if (shape.layers > kMostLayers) refuse(cat("--layers ", shape.layers, " is not in 1 to ", kMostLayers));
  if (shape.type != "qwen3" && shape.type != "llama")
    refuse(cat("--type ", shape.type, " is neither qwen3 nor llama"));
  if (shape.heads % shape.kv_heads != 0)
    refuse(cat("--heads ", shape.heads, " is no multiple of --kv-heads ", shape.kv_heads));
  if (shape.head_dim % 2 != 0)
    refuse(cat("--head-dim ", shape.head_dim, " is odd; rotary positions need pairs"));
  if (shape.head_dim > kMaxHeadDim)
    refuse(cat("--head-dim ", shape.head_dim, " is above ", kMaxHeadDim, ", the most that can be trained"));
}

std::string config_text(const ModelShape& shape, std::int64_t bos_id, std::int64_t eos_id) {
  const bool qwen3 = shape.type == "qwen3";
  nlohmann::json config = {
      {"architectures", {qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"head_dim", shape.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", shape.hidden},
      {"initializer_range", shape.init_std},
      {"intermediate_size", shape.intermediate},
      {"max_position_embeddings", shape.max_positions},
      {"model_type", shape.type},
      {"num_attention_heads", shape.heads},
      {"num_hidden_layers", shape.layers},
      {"num_key_value_heads", shape.kv_heads},
      {"rms_norm_eps", shape.rms_eps},
      {"rope_scaling", nullptr},
      {"rope_theta", static_cast<std::int64_t>(shape.rope_theta)},
      {"tie_word_embeddings", shape.tied},
      {"torch_dtype", shape.dtype == DType::kF32 ? "float32" : "bfloat16"},
      {"use_cache", true},
      {"vocab_size", shape.vocab},
  };
  if (qwen3)
    config.update(
        {{"max_window_layers", shape.layers}, {"sliding_window", nullptr}, {"use_sliding_window", false}});
  else
    config["mlp_bias"] = false;
  if (bos_id >= 0) config["bos_token_id"] = bos_id;
  if (eos_id >= 0) config["eos_token_id"] = eos_id;
  return config.dump(2) + "\n";
}

std::vector<TensorSpec> tensor_specs(const ModelShape& shape) {
  const std::int64_t hidden = shape.hidden, inter = shape.intermediate;
  const std::int64_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  std::vector<TensorSpec> specs;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> dims) {
    specs.push_back({name + ".weight", shape.dtype, std::move(dims)});
  };
  add("model.embed_tokens", {shape.vocab, hidden});
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = cat("model.layers.", i, ".");
    add(layer + "input_layernorm", {hidden});
    add(layer + "self_attn.q_proj", {queries, hidden});
    add(layer + "self_attn.k_proj", {keys, hidden});
    add(layer + "self_attn.v_proj", {keys, hidden});
    add(layer + "self_attn.o_proj", {hidden, queries});
    if (shape.type == "qwen3") {
      add(layer + "self_attn.q_norm", {shape.head_dim});
      add(layer + "self_attn.k_norm", {shape.head_dim});
    }
    add(layer + "post_attention_layernorm", {hidden});
    add(layer + "mlp.gate_proj", {inter, hidden});
    add(layer + "mlp.up_proj", {inter, hidden});
    add(layer + "mlp.down_proj", {hidden, inter});
  }
  add("model.norm", {hidden});
  if (!shape.tied) add("lm_head", {shape.vocab, hidden});
  return specs;
}

}  // namespace tandem
