#include "src/mirror/lora.hpp"

#include <algorithm>
#include <cmath>

#include "src/mirror/check.hpp"
#include "src/mirror/json_file.hpp"
#include "src/mirror/random.hpp"
#include "src/mirror/safetensors.hpp"

namespace tandem::mirror {
namespace {

constexpr const char* kPeftPrefix = "base_model.model.";

// Settings that would make the imported adapter compute something else than the run does.
void check_peft_config(const std::filesystem::path& file, const Spec& spec) {
  const auto config = read_json_file(file);
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kInput, cat(file.string(), ": ", what));
  };
  const auto number = [&](const char* key) {
    if (!config.contains(key) || !config[key].is_number()) refuse(cat("`", key, "` is no number"));
    return config[key].get<double>();
  };
  const auto is_set = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && !found->is_null() && *found != false &&
           !(found->is_structured() && found->empty());
  };
  if (!config.is_object() || config.value("peft_type", "") != "LORA") refuse("is no LoRA adapter's");
  if (number("r") != static_cast<double>(spec.lora_rank)) refuse("`r` is not lora.rank");
  if (number("lora_alpha") != spec.lora_alpha) refuse("`lora_alpha` is not lora.alpha");
  if (is_set("use_rslora") != spec.lora_rslora) refuse("`use_rslora` is not lora.rslora");
  for (const char* key : {"rank_pattern", "alpha_pattern", "use_dora", "modules_to_save", "fan_in_fan_out"})
    if (is_set(key)) refuse(cat("`", key, "` is not supported"));
  if (is_set("bias") && config["bias"] != "none") refuse("`bias` is not supported");
}

}  // namespace

Lora::Lora(const Spec& spec, const Weights& weights)
    : scale_(spec.lora_rslora ? spec.lora_alpha / std::sqrt(static_cast<double>(spec.lora_rank))
                              : spec.lora_alpha / static_cast<double>(spec.lora_rank)),
      dropout_(spec.lora_dropout) {
  std::map<std::string, const Weight*> by_name;  // in byte order
  for (const LayerWeights& layer : weights.layers())
    for (const std::string& target : spec.lora_targets) {
      const Projection& p = projection(layer, target);
      by_name[p.module] = &p.weight;
    }
  for (const auto& [module, weight] : by_name) {
    modules_.push_back(module);
    tensors_.push_back({module + ".lora_A.weight", spec.lora_rank, weight->cols()});
    tensors_.push_back({module + ".lora_B.weight", weight->rows(), spec.lora_rank});
  }
  const bool sorted = std::is_sorted(tensors_.begin(), tensors_.end(),
                                     [](const auto& a, const auto& b) { return a.name < b.name; });
  check(sorted, "adapter tensors are not in byte order of their names");
}

std::optional<std::size_t> Lora::find(const std::string& module) const {
  const auto found = std::lower_bound(modules_.begin(), modules_.end(), module);
  if (found == modules_.end() || *found != module) return std::nullopt;
  return 2 * static_cast<std::size_t>(found - modules_.begin());
}

Tensors Lora::zeros() const {
  Tensors tensors;
  for (const AdapterTensor& t : tensors_)
    tensors.emplace_back(static_cast<std::size_t>(t.rows * t.columns), 0.0);
  return tensors;
}

Tensors Lora::drawn(std::uint64_t seed) const {
  Tensors tensors = zeros();
  for (std::size_t i = 0; i < modules_.size(); ++i)
    tensors[2 * i] = initial_a(seed, modules_[i], tensors_[2 * i].rows, tensors_[2 * i].columns);
  return tensors;
}

Tensors Lora::imported(const std::filesystem::path& folder, const Spec& spec) const {
  check_peft_config(folder / "adapter_config.json", spec);
  const auto path = folder / "adapter_model.safetensors";
  const SafetensorsFile file(path);
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kInput, cat(path.string(), ": ", what));
  };
  Tensors tensors = zeros();
  std::size_t n_used = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const AdapterTensor& wanted = tensors_[i];
    const auto found = file.tensors().find(kPeftPrefix + wanted.name);
    if (found == file.tensors().end()) refuse(cat("`", kPeftPrefix, wanted.name, "` is missing"));
    const StoredTensor& stored = found->second;
    if (stored.shape != std::vector<std::int64_t>{wanted.rows, wanted.columns})
      refuse(cat("`", wanted.name, "` has another shape than the run's"));
    if (stored.dtype != "F32" && stored.dtype != "BF16" && stored.dtype != "F16")
      refuse(cat("`", wanted.name, "` has dtype ", stored.dtype, "; F32, BF16 and F16 are read"));
    stored.widen(0, stored.elements(), tensors[i].data());
    ++n_used;
  }
  if (n_used != file.tensors().size())
    refuse(cat("it has ", file.tensors().size(), " tensors, the run's adapter ", n_used));
  return tensors;
}

void Lora::check_shapes(const Tensors& tensors) const {
  check(tensors.size() == tensors_.size(), tensors.size(), " adapter tensors given, ", tensors_.size(),
        " wanted");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    check(tensors[i].size() == static_cast<std::size_t>(tensors_[i].rows * tensors_[i].columns),
          "a wrong number of values for ", tensors_[i].name);
}

}  // namespace tandem::mirror
