#include "src/model/adapter_folder.hpp"

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// "self_attn.q_proj" -> "q_proj"
std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// "q", ... of the modules named "q_proj", ..., which are put into the layer's order.
std::vector<std::string> targets_of(const std::filesystem::path& folder, AdapterConfig& adapter,
                                    const ModelConfig& config) {
  std::vector<std::string> targets, ordered;
  const LayerShape shape(config);
  for (const Module& module : shape.modules) {
    const std::string name(last_part(module.path));
    if (std::find(adapter.target_modules.begin(), adapter.target_modules.end(), name) ==
        adapter.target_modules.end())
      continue;
    targets.emplace_back(module.target);
    ordered.push_back(name);
  }
  for (const std::string& name : adapter.target_modules)
    if (std::find(ordered.begin(), ordered.end(), name) == ordered.end())
      throw Error(ErrorKind::kInput,
                  cat(folder.string(), ": adapts ", name,
                      ", which is none of the layers' projections (q, k, v, o, gate, up, down)"));
  adapter.target_modules = std::move(ordered);
  return targets;
}

}  // namespace

std::int64_t LoadedAdapter::n_active() const {
  std::int64_t n = 0;
  for (const AdapterTensor& tensor : tensors())
    n += tensor.name.ends_with(".lora_B.weight") &&
         std::any_of(tensor.data.begin(), tensor.data.end(), [](float value) { return value != 0.0f; });
  return n;
}

std::string LoadedAdapter::text() const {
  return cat("rank ", config.rank, ", alpha ", config.alpha, config.rslora ? " (rslora)" : "", ", ",
             n_active(), " of ", n_modules(), " modules active");
}

LoadedAdapter load_adapter(const std::filesystem::path& folder, const ModelConfig& config) {
  AdapterConfig adapter = read_adapter_config(folder);
  const std::vector<std::string> targets = targets_of(folder, adapter, config);
  LoadedAdapter loaded{adapter, LoraLayout(config, adapter.rank, adapter.scale(), targets), {}};
  loaded.values.resize(static_cast<std::size_t>(loaded.layout.size()));
  loaded.layout.load(loaded.values, folder, adapter);
  return loaded;
}

}  // namespace tandem
