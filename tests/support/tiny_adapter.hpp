// An adapter with random A and B for a small model, in a folder of its own.
#pragma once

#include <string>
#include <vector>

#include "io/adapter.hpp"
#include "src/base/random.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"

namespace tandem::support {

inline const std::vector<std::string> kAllTargets = {"q", "k", "v", "o", "gate", "up", "down"};

// Elements of A and B uniform in (-size, size).
inline void make_tiny_adapter(const std::filesystem::path& folder, const ModelConfig& model,
                              std::int64_t rank, double alpha,
                              const std::vector<std::string>& targets = kAllTargets, double size = 0.1,
                              std::uint64_t seed = 5) {
  AdapterConfig config{rank, alpha, false, 0.0, {}, ""};
  for (const Module& module : LayerShape(model).modules)
    for (const std::string& target : targets)
      if (module.target == target)
        config.target_modules.emplace_back(module.path.substr(module.path.rfind('.') + 1));
  const LoraLayout lora(model, rank, config.scale(), targets);
  std::vector<float> flat(static_cast<std::size_t>(lora.size()));
  const RandomStream stream(seed, "adapter");
  for (std::size_t i = 0; i < flat.size(); ++i)
    flat[i] = static_cast<float>((2.0 * stream.unit(i) - 1.0) * size);
  write_adapter(folder, config, lora.views(flat));
}

}  // namespace tandem::support
