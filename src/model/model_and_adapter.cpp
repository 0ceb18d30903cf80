#include "src/model/model_and_adapter.hpp"

#include <ostream>
#include <utility>

namespace tandem {

void ModelAndAdapter::report(std::ostream& log) const {
  for (const std::string& warning : model.weights.warnings()) log << "warning: " << warning << '\n';
  if (adapter && !adapter->config.warning.empty()) log << "warning: " << adapter->config.warning << '\n';
  if (adapter) log << "adapter: " << adapter->text() << '\n';
}

ModelAndAdapter load_model_and_adapter(const std::filesystem::path& model_dir,
                                       const std::filesystem::path& adapter_dir) {
  const ModelConfig config = read_model_config(model_dir);
  std::optional<LoadedAdapter> adapter;
  if (!adapter_dir.empty()) adapter.emplace(load_adapter(adapter_dir, config));
  return {load_model(model_dir), std::move(adapter), LoraLayout(config, 1, 1.0, {})};
}

}  // namespace tandem
