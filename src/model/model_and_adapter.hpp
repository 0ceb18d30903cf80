// A model and, where one is given, an adapter for it: what evaluation and generation compute with.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>

#include "src/model/adapter_folder.hpp"
#include "src/model/loaded_model.hpp"

namespace tandem {

struct ModelAndAdapter {
  LoadedModel model;
  std::optional<LoadedAdapter> adapter;
  LoraLayout none;  // a layout without modules

  const LoraLayout& layout() const { return adapter ? adapter->layout : none; }
  // Empty without an adapter: the base model alone.
  std::span<const float> values() const {
    return adapter ? std::span<const float>(adapter->values) : std::span<const float>();
  }
  // The weights' and the adapter's.
  std::vector<std::string> warnings() const;
  // The warnings, and a line that says how many of the adapter's modules are
  // active.
  void report(std::ostream& log) const;
};

// adapter_dir: empty: none. Throws what load_model and load_adapter throw; the adapter is read first.
ModelAndAdapter load_model_and_adapter(const std::filesystem::path& model_dir,
                                       const std::filesystem::path& adapter_dir);

}  // namespace tandem
