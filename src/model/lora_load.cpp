// An adapter from PEFT's files.
#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/model/lora.hpp"

namespace tandem {

AdapterConfig LoraLayout::load(std::span<float> flat, const std::filesystem::path& folder,
                               const AdapterConfig& expected) const {
  const auto differs = [&](const char* name, const auto& stored, const char* key, const auto& wanted) {
    if (stored != wanted)
      throw Error(ErrorKind::kInput, cat(folder.string(), ": the adapter has ", name, " = ", stored,
                                         ", the run ", key, " = ", wanted));
  };
  const auto word = [](bool value) { return std::string(value ? "true" : "false"); };
  // The settings first: of another rank, every shape would be wrong.
  AdapterConfig stored = read_adapter_config(folder);
  differs("r", stored.rank, "lora.rank", expected.rank);
  differs("lora_alpha", stored.alpha, "lora.alpha", expected.alpha);
  differs("use_rslora", word(stored.rslora), "lora.rslora", word(expected.rslora));
  std::fill(flat.begin(), flat.end(), 0.0f);
  const Adapter adapter = read_adapter(folder, views(flat));
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    std::copy(adapter.tensors[i].begin(), adapter.tensors[i].end(), flat.begin() + tensors_[i].offset);
  return stored;
}

}  // namespace tandem
