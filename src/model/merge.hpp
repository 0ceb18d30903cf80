// A model's files with an adapter merged into its weights: W + s B A in place of each adapted W.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/model_tensors.hpp"
#include "kernels/context.hpp"
#include "src/base/dtype.hpp"
#include "src/model/adapter_folder.hpp"

namespace tandem {

struct MergeReport {
  std::int64_t n_tensors = 0, n_merged = 0;
  // Largest |stored - exact| / |exact| of a merged weight's elements.
  double relative_error = 0.0;
  std::string worst_element;  // "model.layers.0.self_attn.q_proj.weight[3, 17]"
  // Largest ||stored - exact|| / ||s B A|| of a module (Frobenius): 1 where rounding has taken the whole
  // change.
  double share_lost = 0.0;
  std::string worst_module;
  std::vector<std::string> warnings;  // of the model's files, as loading it would give
};

// Writes into `folder` the safetensors files of `model` under the same names, shards with an index of their
// own. Each merged element is formed in double and rounded once to `dtype`, or to the tensor's own. Other
// tensors are copied bit for bit, or converted where `dtype` is given. What was written is read back and
// compared. Throws kInput, file and tensor, for files that Weights would not load as a model of this
// `config`, and where a value or a sum does not fit the dtype.
MergeReport write_merged_model(const CpuContext& ctx, const std::filesystem::path& folder,
                               const ModelConfig& config, const ModelTensors& model,
                               const LoadedAdapter& adapter, std::optional<DType> dtype);

}  // namespace tandem
