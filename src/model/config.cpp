#include "src/model/config.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(std::string file, json object) : file_(std::move(file)), object_(std::move(object)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw Error(ErrorKind::kInput, cat(file_, ": ", key, " = ", value(key).dump(), ": ", why));
  }

  // null counts as absent, as in the models' own code.
  bool has(const std::string& key) const { return !value(key).is_null(); }
  const json& value(const std::string& key) const {
    static const json kNull;
    const auto at = object_.find(key);
    return at == object_.end() ? kNull : *at;
  }

  std::int64_t integer(const std::string& key) const {
    if (!has(key)) throw Error(ErrorKind::kInput, cat(file_, ": ", key, " is missing"));
    const json& v = value(key);
    // 2^24 bounds products of any four sizes well inside 64 bits for every real model.
    if (!v.is_number_integer() || v.get<double>() < 1 || v.get<double>() > 1 << 24)
      refuse(key, "must be a whole number from 1 to 16777216");
    return v.get<std::int64_t>();
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }
  double positive(const std::string& key, double otherwise) const {
    if (!has(key)) return otherwise;
    const json& v = value(key);
    if (!v.is_number() || !(v.get<double>() > 0) || !std::isfinite(v.get<double>()))
      refuse(key, "must be a positive number");
    return v.get<double>();
  }
  bool boolean(const std::string& key) const {
    if (!has(key)) return false;
    if (!value(key).is_boolean()) refuse(key, "must be true or false");
    return value(key).get<bool>();
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!value(key).is_string()) refuse(key, "must be a string");
    return value(key).get<std::string>();
  }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  json object_;
};

// Keys under which other models of these families ask for arithmetic that is not computed here, and the
// values that ask for nothing.
void refuse_other_arithmetic(const Reader& in) {
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window", "rope_interleaved", "qkv_bias"})
    if (in.boolean(key)) in.refuse(key, "is not supported");
  if (in.text("hidden_act", "silu") != "silu") in.refuse("hidden_act", "only silu is supported");
  for (const char* key : {"quantization_config", "num_experts", "num_local_experts",
                          "final_logit_softcapping", "attn_logit_softcapping"})
    if (in.has(key)) in.refuse(key, "is not supported");
  for (const char* key : {"partial_rotary_factor", "embedding_multiplier", "residual_multiplier",
                          "logits_scaling", "logit_scale"})
    if (in.positive(key, 1.0) != 1.0) in.refuse(key, "is not supported");
  if (in.has("attention_multiplier")) in.refuse("attention_multiplier", "is not supported");
  // A window without use_sliding_window belongs to models that always use it; Qwen3 has the switch.
  if (in.has("sliding_window") && !in.has("use_sliding_window"))
    in.refuse("sliding_window", "is not supported");
  if (in.has("layer_types"))
    for (const json& type : in.value("layer_types"))
      if (type != "full_attention") in.refuse("layer_types", "only full_attention is supported");
}

// Old configurations have rope_theta and rope_scaling; new ones both in rope_parameters.
void read_rope(const Reader& in, ModelConfig& config) {
  config.rope_theta = in.positive(planted("unread_theta") ? "rope_base" : "rope_theta", 1e4);
  const char* key = in.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!in.has(key)) return;
  if (in.has("rope_parameters") && in.has("rope_scaling"))
    in.refuse("rope_scaling", "stands beside rope_parameters");
  if (!in.value(key).is_object()) in.refuse(key, "must be an object");
  const Reader rope(cat(in.file(), ": ", key), in.value(key));
  if (rope.has("rope_theta")) {
    config.rope_theta = rope.positive("rope_theta", 1e4);
    if (in.has("rope_theta") && in.positive("rope_theta", 1e4) != config.rope_theta)
      in.refuse("rope_theta", cat("differs from the one in ", key));
  }
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  std::vector<std::string> known = {"rope_theta", "rope_type", "type"};
  if (type == "llama3") {
    ModelConfig::Llama3Rope scaling;
    for (const char* needed :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!rope.has(needed)) in.refuse(key, cat("\"", needed, "\" is missing"));
      known.emplace_back(needed);
    }
    scaling.factor = rope.positive("factor", 1);
    scaling.low_freq_factor = rope.positive("low_freq_factor", 1);
    scaling.high_freq_factor = rope.positive("high_freq_factor", 1);
    scaling.original_positions = rope.positive("original_max_position_embeddings", 1);
    if (!(scaling.high_freq_factor > scaling.low_freq_factor))
      in.refuse(key, "high_freq_factor must be above low_freq_factor");
    config.llama3_rope = scaling;
  } else if (type != "default") {
    in.refuse(key, "only the types \"default\" and \"llama3\" are supported");
  }
  for (const auto& [name, unused] : in.value(key).items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      in.refuse(key, cat("\"", name, "\" is not supported"));
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& model_dir) {
  const std::string file = (model_dir / "config.json").string();
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    throw Error(ErrorKind::kInput, cat(file, ": cannot be opened; a model folder has a config.json"));
  json object;
  try {
    object = json::parse(stream);
  } catch (const json::parse_error& error) {
    throw Error(ErrorKind::kInput, cat(file, ": not JSON, seen at byte ", error.byte));
  } catch (const json::exception&) {
    throw Error(ErrorKind::kInput, cat(file, ": holds a number that no computer word holds"));
  }
  if (!object.is_object()) throw Error(ErrorKind::kInput, cat(file, ": must be one JSON object"));
  const Reader in(file, std::move(object));

  ModelConfig config;
  config.model_type = in.text("model_type", "");
  if (config.model_type != "qwen3" && config.model_type != "qwen2" && config.model_type != "llama")
    in.refuse("model_type", "only \"qwen3\", \"qwen2\" and \"llama\" are supported");
  refuse_other_arithmetic(in);
  config.vocab_size = in.integer("vocab_size");
  config.hidden = in.integer("hidden_size");
  config.intermediate = in.integer("intermediate_size");
  config.n_layers = in.integer("num_hidden_layers");
  config.heads.n_heads = in.integer("num_attention_heads");
  config.heads.n_kv_heads = in.integer("num_key_value_heads", config.heads.n_heads);
  if (config.heads.n_heads % config.heads.n_kv_heads != 0)
    in.refuse("num_key_value_heads", cat("must divide num_attention_heads = ", config.heads.n_heads));
  const bool qwen3 = config.model_type == "qwen3";
  if (!qwen3 && !in.has("head_dim") && config.hidden % config.heads.n_heads != 0)
    in.refuse("num_attention_heads",
              cat("must divide hidden_size = ", config.hidden, " where head_dim is not given"));
  config.heads.head_dim = in.integer("head_dim", qwen3 ? 128 : config.hidden / config.heads.n_heads);
  if (config.heads.head_dim % 2 != 0 || config.heads.head_dim > kMaxHeadDim)
    in.refuse("head_dim", cat("must be even and at most ", kMaxHeadDim));
  config.max_positions = in.integer("max_position_embeddings", 2048);
  config.rms_eps = in.positive("rms_norm_eps", 1e-6);
  read_rope(in, config);
  config.qk_norm = qwen3;
  config.qkv_bias = config.model_type == "qwen2";
  config.tied_head = in.boolean("tie_word_embeddings");
  return config;
}

std::string ModelConfig::echo() const {
  return json{{"model_type", model_type},
              {"vocab_size", vocab_size},
              {"hidden_size", hidden},
              {"intermediate_size", intermediate},
              {"num_hidden_layers", n_layers},
              {"num_attention_heads", heads.n_heads},
              {"num_key_value_heads", heads.n_kv_heads},
              {"head_dim", heads.head_dim},
              {"max_position_embeddings", max_positions},
              {"rms_norm_eps", rms_eps},
              {"rope_theta", rope_theta},
              {"rope_scaling",
               llama3_rope ? json{{"rope_type", "llama3"},
                                  {"factor", llama3_rope->factor},
                                  {"low_freq_factor", llama3_rope->low_freq_factor},
                                  {"high_freq_factor", llama3_rope->high_freq_factor},
                                  {"original_max_position_embeddings", llama3_rope->original_positions}}
                           : json()},
              {"qk_norm", qk_norm},
              {"qkv_bias", qkv_bias},
              {"tie_word_embeddings", tied_head}}
      .dump();
}

}  // namespace tandem
