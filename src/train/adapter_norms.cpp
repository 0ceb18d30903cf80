#include "src/train/adapter_norms.hpp"

#include "kernels/norms.hpp"

namespace tandem {

void ba_norms(const CpuContext& ctx, std::span<double> norms, const LoraLayout& lora,
              std::span<const float> adapter) {
  const auto matrix = [&](std::size_t i) {
    const LoraTensor& tensor = lora.tensors()[i];
    return ConstMatrix(adapter.data() + tensor.offset, tensor.rows, tensor.cols);
  };
  for (std::size_t i = 0; i < norms.size(); ++i)
    norms[i] = static_cast<double>(lora.scale()) * product_norm(ctx, matrix(2 * i + 1), matrix(2 * i));
}

void change_norms(const CpuContext& ctx, std::span<double> norms, const LoraLayout& lora,
                  std::span<const float> after, std::span<const float> before) {
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const LoraTensor& tensor = lora.tensors()[i];
    const auto offset = static_cast<std::size_t>(tensor.offset),
               size = static_cast<std::size_t>(tensor.size());
    norms[i] = difference_norm(ctx, after.subspan(offset, size), before.subspan(offset, size));
  }
}

}  // namespace tandem
