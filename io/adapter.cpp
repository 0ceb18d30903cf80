#include "io/adapter.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "io/publish.hpp"
#include "io/safetensors.hpp"
#include "io/text/strict_json.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kConfig = "adapter_config.json";

enum class Side { kA, kB };

struct ParsedName {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::string target;  // "q_proj"
  Side side;
};

std::optional<ParsedName> try_parse_name(const std::string& name) {
  for (const auto side : {Side::kA, Side::kB}) {
    const std::string_view suffix = side == Side::kA ? ".lora_A.weight" : ".lora_B.weight";
    if (name.size() <= suffix.size() || !name.ends_with(suffix)) continue;
    const std::string module = name.substr(0, name.size() - suffix.size());
    return ParsedName{module, module.substr(module.rfind('.') + 1), side};
  }
  return std::nullopt;
}

ParsedName parse_name(const std::string& name) {
  if (auto parsed = try_parse_name(name)) return std::move(*parsed);
  throw Error(ErrorKind::kInternal,
              cat("adapter tensor ", name, " does not end in .lora_A.weight or .lora_B.weight"));
}

void check_tensors(const AdapterConfig& config, std::span<const AdapterTensor> tensors) {
  std::map<std::string, int> sides;
  std::set<std::string> targets;
  for (const auto& tensor : tensors) {
    const auto parsed = parse_name(tensor.name);
    const int side = parsed.side == Side::kA ? 1 : 2;
    if (sides[parsed.module] & side)
      throw Error(ErrorKind::kInternal, cat("adapter tensor ", tensor.name, " is given twice"));
    sides[parsed.module] |= side;
    targets.insert(parsed.target);
    if ((side == 1 ? tensor.rows : tensor.cols) != config.rank ||
        tensor.data.size() != static_cast<std::size_t>(tensor.rows * tensor.cols))
      throw Error(ErrorKind::kInternal,
                  cat("adapter tensor ", tensor.name, " [", tensor.rows, ", ", tensor.cols, "], ",
                      tensor.data.size(), " elements, does not fit rank ", config.rank));
  }
  for (const auto& [module, both] : sides)
    if (both != 3)
      throw Error(ErrorKind::kInternal, cat("adapter module ", module, " lacks its ", both == 1 ? 'B' : 'A'));
  if (targets != std::set<std::string>(config.target_modules.begin(), config.target_modules.end()))
    throw Error(ErrorKind::kInternal, "the adapter's target_modules are not those of its tensors");
}

json config_json(const AdapterConfig& config) {
  json alpha = config.alpha;  // PEFT declares an integer
  if (std::nearbyint(config.alpha) == config.alpha && std::abs(config.alpha) < 1e15)
    alpha = static_cast<std::int64_t>(config.alpha);
  return {
      {"alpha_pattern", json::object()},
      {"auto_mapping", nullptr},
      {"base_model_name_or_path",
       config.base_model.empty() ? json(nullptr) : json(replace_invalid_utf8(config.base_model))},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layers_pattern", nullptr},
      {"layers_to_transform", nullptr},
      {"lora_alpha", alpha},
      {"lora_dropout", config.dropout},
      {"modules_to_save", nullptr},
      {"peft_type", "LORA"},
      {"r", config.rank},
      {"rank_pattern", json::object()},
      {"revision", nullptr},
      {"target_modules", config.target_modules},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", config.rslora},
  };
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Error(ErrorKind::kInput, cat(file.string(), ": ", what));
}

// Settings that change what an adapter computes: each must be absent, null, or as this program computes it.
void refuse_other_methods(const fs::path& file, const json& config) {
  const std::pair<const char*, json> supported[] = {
      {"peft_type", "LORA"},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"use_dora", false},
      {"lora_bias", false},
      {"alora_invocation_tokens", nullptr},
      {"use_qalora", false},
      {"use_bdlora", nullptr},
      {"trainable_token_indices", nullptr},
      {"target_parameters", nullptr},
      {"rank_pattern", json::object()},
      {"alpha_pattern", json::object()},
      {"modules_to_save", nullptr},
      {"layers_to_transform", nullptr},
      {"layer_replication", nullptr},
      {"exclude_modules", nullptr},
  };
  for (const auto& [key, value] : supported) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null() || *found == value) continue;
    if (found->is_array() && found->empty()) continue;
    refuse(file, cat(key, " = ", found->dump(), " is not supported (only ", value.dump(), ")"));
  }
  if (!config.contains("peft_type")) refuse(file, "lacks peft_type");
}

std::string quoted_list(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += cat(text.empty() ? "" : ", ", json(name).dump());
  return text;
}

// PEFT's rule for a list of names.
bool stands_for(const std::string& target, const std::string& module) {
  return module == target || module.ends_with("." + target);
}

// `modules`: those that have tensors. Throws where target_modules does not stand for them all and nothing
// else; returns a warning where it cannot be known.
std::string check_targets(const fs::path& file, const json& given, const std::set<std::string>& modules) {
  if (given.is_null()) return cat(file.string(), ": target_modules is not given, so nothing was compared");
  std::vector<std::string> targets;
  if (given.is_string()) {
    std::string word = given.get<std::string>();
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word != "all-linear")
      return cat(file.string(), ": target_modules is the pattern ", given.dump(),
                 ", which was not compared with the tensors");
    targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  } else {
    targets = given.get<std::vector<std::string>>();
  }
  std::set<std::string> idle, unnamed;  // names without tensors, tensors without a name
  for (const std::string& target : targets)
    if (std::none_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return stands_for(target, module); }))
      idle.insert(target);
  for (const std::string& module : modules)
    if (std::none_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return stands_for(target, module); }))
      unnamed.insert(module.substr(module.rfind('.') + 1));
  if (!idle.empty())
    refuse(file,
           cat("target_modules asks for ", quoted_list(idle), ", of which ", kWeights, " holds no tensor"));
  if (!unnamed.empty())
    refuse(file, cat("target_modules leaves out ", quoted_list(unnamed), ", of which ", kWeights,
                     " holds tensors"));
  return {};
}

struct StoredConfig {
  AdapterConfig config;
  json target_modules;  // null, a text or a list of texts
};

StoredConfig read_config(const fs::path& file) {
  const json stored = read_strict_json(file);
  if (!stored.is_object()) refuse(file, "is not a JSON object");
  refuse_other_methods(file, stored);
  const auto number = [&](const char* key, std::optional<double> absent) {
    const auto found = stored.find(key);
    if (found == stored.end() && absent) return *absent;
    if (found == stored.end() || !found->is_number()) refuse(file, cat(key, " is not a number"));
    return found->get<double>();
  };
  AdapterConfig config;
  const double rank = number("r", {});
  if (!(rank >= 1 && rank <= 1e9) || std::nearbyint(rank) != rank)
    refuse(file, cat("r = ", rank, " is not a rank"));
  config.rank = static_cast<std::int64_t>(rank);
  config.alpha = number("lora_alpha", {});
  if (!(config.alpha > 0)) refuse(file, cat("lora_alpha = ", config.alpha, ": must be a number > 0"));
  config.dropout = number("lora_dropout", 0.0);
  if (!(config.dropout >= 0 && config.dropout <= 1))
    refuse(file, cat("lora_dropout = ", config.dropout, ": must be a number from 0 to 1"));
  if (const auto found = stored.find("use_rslora"); found != stored.end() && !found->is_null()) {
    if (!found->is_boolean()) refuse(file, "use_rslora is not true or false");
    config.rslora = found->get<bool>();
  }
  const json targets = stored.value("target_modules", json());
  if (!targets.is_null() && !targets.is_string() && !targets.is_array())
    refuse(file, "target_modules is neither a list nor a text");
  for (const json& target : targets.is_array() ? targets : json::array()) {
    if (!target.is_string()) refuse(file, "target_modules holds something that is not text");
    config.target_modules.push_back(target.get<std::string>());
  }
  if (const auto found = stored.find("base_model_name_or_path"); found != stored.end() && found->is_string())
    config.base_model = found->get<std::string>();
  return {std::move(config), targets};
}

[[noreturn]] void refuse_unexpected(const fs::path& file, const std::string& key) {
  for (const std::string_view side : {".lora_A.", ".lora_B."}) {
    const auto at = key.find(side);
    if (at == key.npos || key.ends_with(std::string(side) + "weight")) continue;
    const auto rest = key.substr(at + side.size());
    const auto dot = rest.rfind(".weight");
    if (dot != rest.npos)
      refuse(file, cat("key ", key, " carries an adapter's name (\"", rest.substr(0, dot),
                       "\"); save it again with PEFT's save_pretrained"));
  }
  if (!key.starts_with(kPrefix)) refuse(file, cat("key ", key, " lacks the prefix ", kPrefix));
  refuse(file, cat("tensor ", key, " belongs to no module of this run (lora.targets, lora.rank, the model)"));
}

}  // namespace

double AdapterConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

AdapterConfig read_adapter_config(const fs::path& folder) {
  if (!fs::is_directory(folder)) refuse(folder, "is not a folder with a PEFT adapter");
  auto [config, given] = read_config(folder / kConfig);
  const SafetensorsFile file(folder / kWeights);
  std::set<std::string> targets, modules;
  for (const auto& tensor : file.tensors()) {
    const auto parsed =
        tensor.name.starts_with(kPrefix) ? try_parse_name(tensor.name.substr(kPrefix.size())) : std::nullopt;
    if (!parsed) refuse_unexpected(file.path(), tensor.name);
    const std::size_t side = parsed->side == Side::kA ? 0 : 1;
    if (tensor.shape.size() != 2 || tensor.shape[side] != config.rank)
      refuse(file.path(),
             cat("tensor ", tensor.name, " does not have the rank r = ", config.rank, " of ", kConfig));
    targets.insert(parsed->target);
    modules.insert(parsed->module);
  }
  if (targets.empty()) refuse(file.path(), "holds no tensor");
  config.warning = check_targets(folder / kConfig, given, modules);
  config.target_modules.assign(targets.begin(), targets.end());
  return config;
}

namespace {

Adapter read_values(const fs::path& folder, std::span<const AdapterTensor> expected, bool must_be_finite) {
  if (!fs::is_directory(folder)) refuse(folder, "is not a folder with a PEFT adapter");
  Adapter adapter;
  adapter.config = read_config(folder / kConfig).config;
  const SafetensorsFile file(folder / kWeights);

  std::set<std::string, std::less<>> keys;
  for (const auto& tensor : expected) keys.insert(std::string(kPrefix) + tensor.name);
  for (const auto& tensor : file.tensors())
    if (!keys.contains(tensor.name)) refuse_unexpected(file.path(), tensor.name);
  for (const auto& tensor : expected) {
    const std::int64_t shape[] = {tensor.rows, tensor.cols};
    const auto& stored = file.require(std::string(kPrefix) + tensor.name, shape);
    const bool is_a = parse_name(tensor.name).side == Side::kA;
    if ((is_a ? tensor.rows : tensor.cols) != adapter.config.rank)
      refuse(folder / kConfig, cat("r = ", adapter.config.rank, ", but ", tensor.name, " has rank ",
                                   is_a ? tensor.rows : tensor.cols));
    auto& values = adapter.tensors.emplace_back(static_cast<std::size_t>(tensor.rows * tensor.cols));
    widen_to_f32(stored, values);
    if (must_be_finite) require_finite(file.path(), stored, 0, values);
  }
  return adapter;
}

}  // namespace

Adapter read_adapter(const fs::path& folder, std::span<const AdapterTensor> expected) {
  return read_values(folder, expected, true);
}

void write_adapter(const fs::path& folder, const AdapterConfig& config,
                   std::span<const AdapterTensor> tensors) {
  check_tensors(config, tensors);
  FolderPublisher publisher(folder);
  write_adapter_files(publisher.staging(), config, tensors);
  publisher.publish();
}

void write_adapter_files(const fs::path& folder, const AdapterConfig& config,
                         std::span<const AdapterTensor> tensors) {
  check_tensors(config, tensors);
  std::vector<TensorSpec> specs;
  for (const auto& tensor : tensors)
    specs.push_back({std::string(kPrefix) + tensor.name, DType::kF32, {tensor.rows, tensor.cols}});
  SafetensorsWriter weights(folder / kWeights, std::move(specs));
  for (const auto& tensor : tensors) weights.write(tensor.data);
  weights.publish();
  publish_file(folder / kConfig, config_json(config).dump(2) + "\n");

  // What a run came to is saved as it is; reading refuses values that are not finite.
  const Adapter stored = read_values(folder, tensors, false);
  const bool same_config = config_json(stored.config) == config_json(config);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].data.empty() &&
        std::memcmp(stored.tensors[i].data(), tensors[i].data.data(), tensors[i].data.size_bytes()) != 0)
      refuse(folder,
             cat("tensor ", tensors[i].name, " reads back other than it was written; nothing was published"));
  if (!same_config)
    refuse(folder, cat(kConfig, " reads back other than it was written; nothing was published"));
}

std::string adapter_digest(std::span<const AdapterTensor> tensors) {
  std::vector<const AdapterTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  Sha256 digest;
  for (const auto* tensor : order) digest.update(tensor->data);
  return digest.hex();
}

}  // namespace tandem
