#include "src/model/model_and_adapter.hpp"

#include <ostream>
#include <utility>

namespace tandem {

std::vector<std::string> ModelAndAdapter::warnings() const {
  std::vector<std::string> all = model.weights.warnings();
  if (adapter && !adapter->config.warning.empty()) all.push_back(adapter->config.warning);
  return all;
}

void ModelAndAdapter::report(std::ostream& log) const {
  for (const std::string& warning : warnings()) log << "warning: " << warning << '\n';
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
