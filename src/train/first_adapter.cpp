#include "src/train/first_adapter.hpp"

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/recorder.hpp"

namespace tandem {

std::string first_adapter(std::span<float> flat, const LoraLayout& lora, const RunSpec& spec) {
  if (!spec.lora_init.given()) {
    lora.initialise(flat, spec.seed_adapter);
    return {};
  }
  try {
    return lora.load(flat, spec.lora_init.path, adapter_config(spec)).warning;
  } catch (const Error& error) {
    throw Error(error.kind(), cat("lora.init: ", error.what()));
  }
}

}  // namespace tandem
