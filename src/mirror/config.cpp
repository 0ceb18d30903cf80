#include "src/mirror/config.hpp"

#include <cmath>

#include "src/base/error.hpp"
#include "src/mirror/json_file.hpp"

namespace tandem::mirror {
namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file.string()), root_(read_json_file(file)) {
    if (!root_.is_object()) refuse("is no JSON object");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kInput, cat(file_, ": ", what));
  }

  // A key that is null counts as missing, as it does in published files.
  static const json* find(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  const json* find(const char* key) const { return find(root_, key); }

  std::int64_t count(const char* key, std::optional<std::int64_t> missing = std::nullopt) const {
    const json* value = find(key);
    if (!value && missing) return *missing;
    if (!value) refuse(cat("`", key, "` is missing"));
    if (!value->is_number_integer() || value->get<std::int64_t>() < 1 ||
        value->get<std::int64_t>() > INT32_MAX)
      refuse(cat("`", key, "` = ", value->dump(), " is no count"));
    return value->get<std::int64_t>();
  }

  double positive(const json& object, const char* key, std::optional<double> missing = std::nullopt) const {
    const json* value = find(object, key);
    if (!value && missing) return *missing;
    if (!value) refuse(cat("`", key, "` is missing"));
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
      refuse(cat("`", key, "` = ", value->dump(), " is no positive number"));
    return value->get<double>();
  }
  double positive(const char* key, double missing) const { return positive(root_, key, missing); }

  bool boolean(const char* key, bool missing) const {
    const json* value = find(key);
    if (!value) return missing;
    if (!value->is_boolean()) refuse(cat("`", key, "` = ", value->dump(), " is neither true nor false"));
    return value->get<bool>();
  }

  std::string word(const json& object, const char* key, const std::string& missing) const {
    const json* value = find(object, key);
    if (!value) return missing;
    if (!value->is_string()) refuse(cat("`", key, "` = ", value->dump(), " is no text"));
    return value->get<std::string>();
  }

  const json& root() const { return root_; }

 private:
  std::string file_;
  json root_;
};

void refuse_what_is_not_computed(const Reader& reader) {
  if (const auto act = reader.word(reader.root(), "hidden_act", "silu"); act != "silu")
    reader.refuse(cat("the activation ", act, " is not supported"));
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (reader.boolean(key, false)) reader.refuse(cat("`", key, "` is not supported"));
  // Qwen's files name a window and switch it off; without the switch it is on.
  if (reader.boolean("use_sliding_window", reader.find("sliding_window") != nullptr))
    reader.refuse("sliding windows are not supported");
  if (const json* types = reader.find("layer_types"))
    for (const json& type : *types)
      if (type != "full_attention") reader.refuse(cat("layers of type ", type.dump(), " are not supported"));
  if (reader.find("quantization_config")) reader.refuse("quantised weights are not supported");
  if (reader.positive("partial_rotary_factor", 1.0) != 1.0)
    reader.refuse("partial rotation is not supported");
}

// theta and scaling may stand under `rope_parameters` (newer files) or `rope_theta` and `rope_scaling`.
void read_rope(const Reader& reader, Config& config) {
  config.rope_theta = reader.positive("rope_theta", 1e4);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* rope = reader.find(key);
    if (!rope) continue;
    if (!rope->is_object()) reader.refuse(cat("`", key, "` is no object"));
    const double theta = reader.positive(*rope, "rope_theta", config.rope_theta);
    if (reader.find("rope_theta") && theta != config.rope_theta)
      reader.refuse(cat("`rope_theta` is said twice and differently"));
    config.rope_theta = theta;
    const std::string type = reader.word(*rope, "rope_type", reader.word(*rope, "type", "default"));
    if (type == "default") continue;
    if (type != "llama3") reader.refuse(cat("rope scaling of type ", type, " is not supported"));
    config.rope_scaling = {reader.positive(*rope, "factor"), reader.positive(*rope, "low_freq_factor"),
                           reader.positive(*rope, "high_freq_factor"),
                           reader.positive(*rope, "original_max_position_embeddings")};
    if (config.rope_scaling->low_freq_factor >= config.rope_scaling->high_freq_factor)
      reader.refuse("`low_freq_factor` is not below `high_freq_factor`");
  }
}

}  // namespace

Config read_config(const std::filesystem::path& file) {
  const Reader reader(file);
  Config config;
  config.model_type = reader.word(reader.root(), "model_type", "");
  if (config.model_type != "qwen3" && config.model_type != "qwen2" && config.model_type != "llama")
    reader.refuse(
        cat("models of type `", config.model_type, "` are not supported: qwen3, qwen2 and llama are"));
  refuse_what_is_not_computed(reader);
  config.vocab_size = reader.count("vocab_size");
  config.hidden_size = reader.count("hidden_size");
  config.intermediate_size = reader.count("intermediate_size");
  config.layers = reader.count("num_hidden_layers");
  config.heads = reader.count("num_attention_heads");
  config.kv_heads = reader.count("num_key_value_heads", config.heads);
  if (config.heads % config.kv_heads != 0) reader.refuse("query heads are no multiple of key-value heads");
  const bool even_split = config.hidden_size % config.heads == 0;
  if (config.model_type != "qwen3" && !reader.find("head_dim") && !even_split)
    reader.refuse("`hidden_size` is no multiple of `num_attention_heads`");
  config.head_dim =
      reader.count("head_dim", config.model_type == "qwen3" ? 128 : config.hidden_size / config.heads);
  if (config.head_dim % 2 != 0) reader.refuse("`head_dim` is odd, so rotary embedding has no pairs");
  config.rms_norm_eps = reader.positive("rms_norm_eps", 1e-6);
  config.tied_head = reader.boolean("tie_word_embeddings", false);
  config.max_position_embeddings = reader.count("max_position_embeddings", 2048);
  read_rope(reader, config);
  return config;
}

std::string Config::echo() const {
  json scaling;
  if (rope_scaling)
    scaling = {{"rope_type", "llama3"},
               {"factor", rope_scaling->factor},
               {"low_freq_factor", rope_scaling->low_freq_factor},
               {"high_freq_factor", rope_scaling->high_freq_factor},
               {"original_max_position_embeddings", rope_scaling->original_context}};
  const json echo = {{"model_type", model_type},
                     {"vocab_size", vocab_size},
                     {"hidden_size", hidden_size},
                     {"intermediate_size", intermediate_size},
                     {"num_hidden_layers", layers},
                     {"num_attention_heads", heads},
                     {"num_key_value_heads", kv_heads},
                     {"head_dim", head_dim},
                     {"rms_norm_eps", rms_norm_eps},
                     {"rope_theta", rope_theta},
                     {"rope_scaling", scaling},
                     {"tie_word_embeddings", tied_head},
                     {"qk_norm", qk_norm()},
                     {"qkv_bias", qkv_bias()},
                     {"max_position_embeddings", max_position_embeddings}};
  return echo.dump();
}

}  // namespace tandem::mirror
