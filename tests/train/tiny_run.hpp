// A tiny model and its trainer in one process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/train/trainer.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem::train_test {

struct TinyRun {
  explicit TinyRun(const SampleSet& train_, const RunSpec& spec_, std::int64_t micro,
                   const SampleSet& held_out_ = {}, int threads = 1, Communicator* comm = nullptr,
                   const std::string& type = "qwen3", std::int64_t n_recomputed = 0, std::int64_t probe = 512)
      : model(support::make_tiny_model(folder, type)),
        config(read_model_config(model)),
        memory(Weights::bytes(config), "weights"),
        weights(config, memory.block()),
        ctx(threads),
        train(train_),
        held_out(held_out_),
        spec(spec_),
        lora(config, spec.lora_rank, spec.lora_scale(), spec.lora_targets) {
    weights.load(ModelTensors(model));
    resolve(spec, train.size());
    execution.batch_micro = micro;
    execution.observe_probe = probe;
    trainer.emplace(ctx, comm ? *comm : single, spec, execution, config, weights, lora, train, held_out,
                    n_recomputed);
    lora.initialise(trainer->adapter(), spec.seed_adapter);
  }
  UpdateResult update(std::int64_t t, bool observed = false) {
    UpdateResult result = trainer->compute_gradient(t);
    trainer->step(t, result, observed);
    return result;
  }
  std::vector<float> gradient() const { return {trainer->gradient().begin(), trainer->gradient().end()}; }
  std::vector<float> adapter() { return {trainer->adapter().begin(), trainer->adapter().end()}; }

  support::TempFolder folder;
  std::filesystem::path model;
  ModelConfig config;
  Arena memory;
  Weights weights;
  CpuContext ctx;
  SingleCommunicator single;
  SampleSet train, held_out;
  RunSpec spec;
  Execution execution;
  LoraLayout lora;
  std::optional<Trainer> trainer;
};

inline RunSpec spec_of(std::int64_t global, std::int64_t updates = 6) {
  RunSpec spec;
  spec.lora_rank = 4;
  spec.lora_alpha = 8.0;
  spec.batch_global = global;
  spec.train_updates = updates;
  spec.optim_warmup = 1;
  spec.optim_lr = 0.01;
  return spec;
}

}  // namespace tandem::train_test
