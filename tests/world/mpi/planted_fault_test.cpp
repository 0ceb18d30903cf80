// A flipped bit in one limb of one rank's gradient is caught in its own update, on every rank, before the
// step.
#include <gtest/gtest.h>

#include <optional>

#include "src/base/text.hpp"
#include "src/train/trainer.hpp"
#include "tests/comm/mpi/world.hpp"
#include "tests/support/faulty_communicator.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

using mpi_test::world;
using support::Fault;

TEST(PlantedFault, IsCaughtInItsUpdateOnEveryRankBeforeTheStep) {
  const support::TempFolder folder;
  const std::filesystem::path model = support::make_tiny_model(folder, "qwen3");
  const ModelConfig config = read_model_config(model);
  Arena memory(Weights::bytes(config), "weights");
  Weights weights(config, memory.block());
  weights.load(ModelTensors(model));
  const CpuContext ctx(1);
  const SampleSet train = support::make_samples({9, 5, 14, 3, 8, 11, 6, 7}, {4, 3, 6, 2, 4, 5, 3, 3});
  RunSpec spec;
  spec.lora_rank = 4;
  spec.batch_global = 4;
  spec.train_updates = 3;
  resolve(spec, train.size());
  Execution execution;
  execution.batch_micro = 1;
  const LoraLayout lora(config, spec.lora_rank, spec.lora_scale(), spec.lora_targets);

  const int last = world().size() - 1;
  constexpr std::size_t kElement = 1234;
  for (const auto when : {Fault::When::kBefore, Fault::When::kAfter}) {
    // The lowest bit there is: 2^-64 of one element's gradient.
    const std::size_t limb = static_cast<std::size_t>(lora.size() + 1) + kElement;
    support::FaultyCommunicator faulty(
        world(), {.kind = Fault::Kind::kFlip, .when = when, .rank = last, .call = 1, .limb = limb, .bit = 0});
    Trainer trainer(ctx, faulty, spec, execution, config, weights, lora, train, SampleSet());
    lora.initialise(trainer.adapter(), spec.seed_adapter);
    UpdateResult first = trainer.compute_gradient(1);
    trainer.step(1, first);
    const std::vector<float> adapter(trainer.adapter().begin(), trainer.adapter().end());
    try {
      (void)trainer.compute_gradient(2);
      FAIL() << "the fault passed";
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice);
      const std::string start =
          cat("update 2: the all-reduce of ", lora.size() + 1, " elements does not add up on ");
      EXPECT_EQ(std::string(error.what()).substr(0, start.size()), start);
      EXPECT_EQ(error.rank(), when == Fault::When::kBefore ? 0 : last);
    }
    EXPECT_TRUE(std::equal(adapter.begin(), adapter.end(), trainer.adapter().begin()));
  }
}

}  // namespace
}  // namespace tandem
