#include "src/train/memory_plan.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

struct Planned {
  Planned()
      : config(read_model_config(support::make_tiny_model(folder, "qwen3"))),
        lora(config, 8, 1.0, {"q", "down"}) {}
  MemoryPlan plan(std::int64_t limit, int local_ranks = 1) const {
    return plan_memory(config, lora, {}, 2, samples, {}, 1, local_ranks, limit);
  }
  support::TempFolder folder;
  ModelConfig config;
  LoraLayout lora;
  SampleSet samples = support::make_samples({1000, 900, 800}, {500, 500, 500});
};

TEST(MemoryPlan, RecomputesAsFewLayersAsFit) {
  const Planned run;
  const std::int64_t whole = run.plan(std::int64_t{1} << 40).node_bytes();
  EXPECT_EQ(run.plan(whole).n_recomputed, 0);
  const MemoryPlan tight = run.plan(whole - 1);
  EXPECT_GE(tight.n_recomputed, 1);
  EXPECT_LT(tight.node_bytes(), whole);
  EXPECT_GT(run.plan(std::int64_t{1} << 40, 3).node_bytes(), 2 * whole);
}

TEST(MemoryPlan, RefusesWithTheFiguresWhatCannotFit) {
  try {
    Planned().plan(1 << 20);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(std::string(error.what()).find("does not fit into 0.00 GiB: memory: "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tandem
