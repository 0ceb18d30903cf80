// Weights from the files of a model.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/model/weights.hpp"

namespace tandem {

namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// The tensor's values in `place`; what was read.
LoadRow read_tensor(const ModelTensors& tensors, const std::string& name,
                    const std::vector<std::int64_t>& shape, std::span<float> place) {
  const TensorRecord& record = tensors.require(name, shape);
  widen_to_f32(record, place);
  double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum, squares)
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto value = static_cast<double>(place[i]);
    sum += value;
    squares += value * value;
  }
  if (!std::isfinite(squares)) require_finite(tensors.file_of(name), record, 0, place);
  const double n = std::max<double>(1.0, static_cast<double>(place.size()));
  LoadRow row{
      name, Sha256().update(record.data).hex(), shape, record.dtype_name, sum / n, std::sqrt(squares / n)};
  drop_pages(record);
  return row;
}

// A planted fault: a square tensor taken for one stored by columns.
void transpose(std::span<float> square, std::int64_t n) {
  const Matrix m(square.data(), n, n);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < r; ++c) std::swap(m.row(r)[c], m.row(c)[r]);
}

// Takes a tied model's stored head, which nothing reads, as part of the model.
bool is_ignored_head(const std::string& name, const ModelConfig& config) {
  return config.tied_head && name == kHead;
}

}  // namespace

std::vector<std::string> Weights::check(const ModelConfig& config, const ModelTensors& tensors) {
  ArenaPlan plan;
  Weights weights(config, {});
  weights.lay_out(plan);
  return weights.check(tensors);
}

std::vector<std::string> Weights::check(const ModelTensors& tensors) const {
  std::set<std::string> used;
  for (const Place& place : places_) {
    tensors.require(place.name, place.shape);
    used.insert(place.name);
  }
  for (const std::string& name : tensors.names()) {
    if (used.count(name) || is_ignored_head(name, config_) ||
        name.find("rotary_emb.inv_freq") != std::string::npos)
      continue;
    throw Error(ErrorKind::kInput,
                cat(tensors.file_of(name).string(), ": tensor ", name,
                    " is not part of this model; its config.json does not say what to do with it"));
  }
  std::vector<std::string> warnings;
  if (const TensorRecord* stored = tensors.find(kHead); stored && config_.tied_head) {
    const TensorRecord* embedding = tensors.find(kEmbedding);
    if (stored->dtype_name != embedding->dtype_name || stored->shape != embedding->shape ||
        std::memcmp(stored->data.data(), embedding->data.data(), embedding->data.size()) != 0) {
      if (stored->dtype) require_finite(tensors.file_of(kHead), *stored);
      warnings.push_back(
          cat(tensors.file_of(kHead).string(), ": ", kHead,
              " differs from the embedding and is ignored: config.json ties the head to the embedding"));
    }
  }
  for (const std::string& file : tensors.ignored_files())
    warnings.push_back(cat(file, " lies in the model's folder and is not part of the model"));
  return warnings;
}

void Weights::load(const ModelTensors& tensors) {
  warnings_ = check(tensors);
  for (const Place& place : places_) {
    load_rows_.push_back(read_tensor(tensors, place.name, place.shape, place.data));
    if (planted("transposed_tensor") && place.name.ends_with("layers.0.self_attn.o_proj.weight"))
      transpose(place.data, place.shape[0]);
  }
}

}  // namespace tandem
