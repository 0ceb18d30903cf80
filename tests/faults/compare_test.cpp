// What `tandem compare` makes of each planted fault, from the files of its run alone: native.h5 with its
// audits, and mirror.h5, which trained freely beside it.
#include "src/compare/compare.hpp"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "src/compare/view.hpp"
#include "tests/faults/faults.hpp"
#include "tests/support/mirrored_runs.hpp"

namespace tandem::faults_test {

// For the names of tests.
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

namespace {

namespace fs = std::filesystem;
using support::Bench;

// The first divergence.
struct Found {
  int level;
  std::int64_t update;      // -1: of no update
  std::string name, place;  // parts of them
};

const std::map<std::string, Found>& expected() {
  static const std::map<std::string, Found> table = {
      {"flipped_bit", {4, 1, "A: audited gradients", "v_proj.lora_B.weight: d = 0.0523"}},
      {"wrong_alpha",
       {4, 1, "A: audited gradients", "layers.1.mlp.down_proj.lora_B.weight: d = 0.000998, s = 1.001"}},
      {"dropped_rank", {4, 1, "loss of each update", "update 1"}},
      {"unread_theta", {2, -1, "model configuration as read", "rope_theta 10000.0 in A, 1000000.0 in B"}},
      {"wrong_norm_eps", {1, 0, "untrained model's activations", "after layer 0, rms"}},
      {"wrong_adam_eps", {4, 1, "A: audited AdamW steps", "lora_B.weight"}},
      {"transposed_tensor", {2, 0, "base weights in memory", "model.layers.0.self_attn.o_proj.weight"}},
      {"ignored_stride", {4, 1, "A: audited gradients", "layers.1.mlp.gate_proj.lora_B.weight"}},
      {"half_shared_projection", {4, 1, "A: audited gradients", "layers.1.self_attn.q_proj.lora_B.weight"}},
      {"generic_template", {3, -1, "samples", "training sample 0"}},
      {"shifted_labels", {1, 0, "untrained model's logits", "held-out sample 0"}},
      {"lost_moments",
       {4, 2, "A: audits' verdicts", "adapter or moments are not what the update before left"}},
      {"leaking_packing", {1, 0, "untrained model's activations", "after layer 0, rms"}},
      {"eval_without_adapter",
       {4, 1, "A: the adapter takes part in evaluations", "evaluation after update 1"}},
  };
  return table;
}

Comparison compared(const fs::path& run) {
  const Trajectory both[] = {read_trajectory(run / "native.h5"), read_trajectory(run / "mirror.h5")};
  return compare(both, {});
}

std::string view_of(const Comparison& c) {
  std::ostringstream out;
  write_view(c, {}, out);
  return out.str();
}

constexpr const char* kOptions = " --train.updates 3 --eval.every 1 --optim.warmup 0 --mirror.mode both ";

std::vector<Fault> all_faults() {
  std::vector<Fault> all = faults();
  all.push_back(kEvaluation);
  return all;
}

class ComparedFaults : public testing::TestWithParam<Fault> {};

TEST_P(ComparedFaults, IsNamedAtItsLevelAndPlaceFromItsFilesAlone) {
  const Fault& fault = GetParam();
  const Found& wanted = expected().at(fault.name);
  Bench bench;
  const Comparison found =
      compared(bench.train({fault.ranks, cat(kOptions, "--batch.micro 2"),
                            cat("TANDEM_FAULT=", fault.name, " ", fault.environment), TANDEM_FAULTY}));
  ASSERT_EQ(found.conclusion, Comparison::Conclusion::kDisagree) << view_of(found);
  ASSERT_GE(found.first, 0);
  const Observation& first = found.observations[static_cast<std::size_t>(found.first)];
  EXPECT_EQ(level_of(first.stage), wanted.level) << view_of(found);
  EXPECT_EQ(first.update, wanted.update) << view_of(found);
  EXPECT_NE(first.name.find(wanted.name), std::string::npos) << view_of(found);
  EXPECT_NE(first.place.find(wanted.place), std::string::npos) << view_of(found);
}

INSTANTIATE_TEST_SUITE_P(Each, ComparedFaults, testing::ValuesIn(all_faults()),
                         [](const testing::TestParamInfo<Fault>& fault) { return fault.param.name; });

TEST(Compared, CleanRunsPassWhateverTheMicroBatch) {
  Bench bench;
  for (const char* micro : {"1", "2", "4"}) {
    const Comparison found = compared(bench.train({1, cat(kOptions, "--batch.micro ", micro)}));
    EXPECT_EQ(found.conclusion, Comparison::Conclusion::kPass) << view_of(found);
  }
}

}  // namespace
}  // namespace tandem::faults_test
