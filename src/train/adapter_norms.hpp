// Norms of the adapter that evaluations record (/activation/{ba_norm, update_norm}).
#pragma once

#include <span>

#include "kernels/context.hpp"
#include "src/model/lora.hpp"

namespace tandem {

// norms[i] = Frobenius norm of s B A of the module whose A and B are tensors 2i and 2i+1 of the layout, s as
// the forward pass has it. norms [tensors / 2].
void ba_norms(const CpuContext& ctx, std::span<double> norms, const LoraLayout& lora,
              std::span<const float> adapter);

// norms[i] = 2-norm of after - before of tensor i. after, before: flat arrays; norms [tensors].
void change_norms(const CpuContext& ctx, std::span<double> norms, const LoraLayout& lora,
                  std::span<const float> after, std::span<const float> before);

}  // namespace tandem
