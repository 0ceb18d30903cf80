#include "src/train/memory_plan.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

struct Planned {
  Planned()
      : config(read_model_config(support::make_tiny_model(folder, "qwen3"))),
        lora(config, 8, 1.0, {"q", "down"}) {
    execution.batch_micro = 2;
  }
  MemoryPlan plan(std::int64_t limit, int local_ranks = 1) const {
    return plan_memory(config, lora, {}, execution, samples, {}, 1, local_ranks, limit);
  }
  Execution execution;
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

TEST(MemoryPlan, CountsWhatEvaluationsLeave) {
  const Planned run;
  RunSpec spec;
  spec.train_updates = 1000, spec.eval_every = 1;
  const auto other_bytes = [&](std::int64_t probe, const SampleSet& held_out) {
    Execution execution = run.execution;
    execution.observe_probe = probe;
    return plan_memory(run.config, run.lora, spec, execution, run.samples, held_out, 1, 1,
                       std::int64_t{1} << 40)
        .other_bytes;
  };
  const std::int64_t none = other_bytes(512, {}), without = other_bytes(0, run.samples),
                     with = other_bytes(512, run.samples);
  EXPECT_GT(without, none);
  EXPECT_EQ(with - without, 2 * 1002 * 512 * 18 * 8);  // 74 kB an evaluation, twice
}

TEST(MemoryPlan, CountsTheMirrorOnceANode) {
  const Planned run;
  RunSpec spec;
  spec.model.path = run.folder.path() / "no_model";
  Execution execution = run.execution;
  const auto plan = [&](std::int64_t every, const std::string& mode, int ranks) {
    execution.mirror_every = every;
    execution.mirror_mode = mode;
    return plan_memory(run.config, run.lora, spec, execution, run.samples, {}, 1, ranks,
                       std::int64_t{1} << 40);
  };
  const std::int64_t none = plan(0, "audit", 1).node_bytes(), two = plan(0, "audit", 2).node_bytes();
  const MemoryPlan audits = plan(1, "audit", 1);
  EXPECT_EQ(audits.node_bytes(), none + audits.mirror_bytes);
  EXPECT_EQ(plan(1, "audit", 2).node_bytes(), two + audits.mirror_bytes);
  EXPECT_GT(plan(1, "both", 1).mirror_bytes, audits.mirror_bytes);
  EXPECT_NE(audits.lines()[0].find("; the mirror 0."), std::string::npos) << audits.lines()[0];
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
