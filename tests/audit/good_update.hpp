// A mirror of a small model, and updates as native would hand them over if it rounded only where it stores:
// the mirror's own numbers as float32.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "src/audit/update_job.hpp"
#include "src/mirror/mirror.hpp"
#include "tests/mirror/tiny.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem::audit_test {

// lengths and targets of the training rows, as make_rows() takes them.
inline mirror::Inputs make_inputs(const support::TempFolder& folder, const std::string& kind = "qwen3",
                                  const std::vector<int>& lengths = {9, 12, 7, 10, 14, 8, 11, 6},
                                  const std::vector<int>& targets = {4, 5, 3, 6, 7, 2, 8, 3},
                                  const std::map<std::string, std::string>& keys = {}) {
  mirror::Inputs inputs;
  inputs.model = mirror::make_tiny(folder, kind);
  inputs.train = mirror::make_rows(folder, "train.jsonl", lengths, targets);
  inputs.held_out = mirror::make_rows(folder, "held_out.jsonl", {8, 11}, {3, 4});
  inputs.spec_text = mirror::tiny_spec(inputs, keys);
  return inputs;
}

inline FlatTensors flat(const mirror::Tensors& tensors) {
  FlatTensors all;
  for (const auto& tensor : tensors)
    for (const double x : tensor) all.push_back(static_cast<float>(x));
  return all;
}

inline mirror::Tensors stored(const mirror::Tensors& tensors) {
  mirror::Tensors rounded = tensors;
  for (auto& tensor : rounded)
    for (double& x : tensor) x = static_cast<double>(static_cast<float>(x));
  return rounded;
}

// Update t from `state` (values of float32), which is stepped.
inline UpdateJob good_update(const mirror::Mirror& mirror, mirror::AdapterState& state, std::int64_t t) {
  UpdateJob job;
  job.step = t;
  job.steps_before = state.steps;
  job.sample_ids = mirror.batch(t);
  for (const std::int64_t id : job.sample_ids)
    job.sample_digests.push_back(mirror.training_samples()[static_cast<std::size_t>(id)].digest);
  mirror::BatchGradient batch = mirror.gradient(state.adapter, job.sample_ids, t);
  job.n_targets = batch.n_scored;
  job.loss = batch.nll_sum / static_cast<double>(batch.n_scored);
  for (auto& tensor : batch.gradient)
    for (double& g : tensor) g = batch.n_scored > 0 ? g / static_cast<double>(batch.n_scored) : 0.0;
  batch.gradient = stored(batch.gradient);
  double square = 0.0;
  for (const auto& tensor : batch.gradient)
    for (const double g : tensor) square += g * g;
  job.norm = std::sqrt(square);
  job.clip = mirror.clip_factor(job.norm);
  job.lr = mirror.lr(t);
  job.adapter = flat(state.adapter), job.m = flat(state.m), job.v = flat(state.v);
  job.gradient = flat(batch.gradient);
  if (job.n_targets > 0) mirror.adamw(state, batch.gradient, job.clip, job.lr);
  state.adapter = stored(state.adapter), state.m = stored(state.m), state.v = stored(state.v);
  job.adapter_after = flat(state.adapter), job.m_after = flat(state.m), job.v_after = flat(state.v);
  job.config = mirror.config_echo();
  const std::string first = mirror.tensor_names().front();
  job.base_tensor = {0, first, mirror.memory_digest(first)};
  return job;
}

inline mirror::AdapterState first_state(const mirror::Mirror& mirror) {
  mirror::AdapterState state = mirror.initial();
  state.adapter = stored(state.adapter);
  return state;
}

}  // namespace tandem::audit_test
