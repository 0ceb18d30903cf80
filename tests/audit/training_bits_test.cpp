// The mirror looks on: what training computes has the same bits with and without it, however it is asked to
// look.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/mirrored_runs.hpp"
#include "tests/world/hdf5_differences.hpp"

namespace tandem::audit_test {
namespace {

namespace fs = std::filesystem;
using support::Bench;
using support::Command;

constexpr const char* kOptions =
    "--batch.micro 2 --train.updates 7 --eval.every 3 --observe.every 1 --snapshot.every 2 ";

std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
  const auto may_differ = [](const std::string& path) {
    return path.starts_with("/provenance@") || path.starts_with("/execution/") ||
           path.starts_with("/memory/") || path.starts_with("/slow/") || path.ends_with("/seconds") ||
           path == "/@written_at" || path.starts_with("/audit") || path.starts_with("/load/memory");
  };
  std::vector<std::string> all;
  std::size_t compared = 0;
  for (const char* name :
       {"native.h5", "native.snapshots/2.h5", "native.snapshots/4.h5", "native.snapshots/6.h5"}) {
    const world_test::FileComparison result = world_test::compare_hdf5(a / name, b / name, may_differ);
    compared += result.compared.size();
    for (const std::string& line : result.differences) all.push_back(cat(name, ": ", line));
  }
  EXPECT_GT(compared, 100u);
  return all;
}

class TrainingBits : public testing::Test {
 protected:
  void SetUp() override { reference_ = bench_.train({.options = kOptions, .every = 0}); }
  fs::path expect_equal(int ranks, const std::string& options, int every = 1) {
    SCOPED_TRACE(cat(ranks, " ranks ", options));
    const fs::path run = bench_.train({.ranks = ranks, .options = kOptions + options, .every = every});
    EXPECT_EQ(differences(reference_, run), std::vector<std::string>());
    return run;
  }
  Bench bench_;
  fs::path reference_;
};

TEST_F(TrainingBits, AreTheSameHoweverTheMirrorLooksOn) {
  expect_equal(1, "");
  expect_equal(1, "--mirror.scope microbatch", 2);
  expect_equal(1, "--mirror.mode free", 0);
  expect_equal(1, "--mirror.mode both --mirror.threads 2");
  const Trajectory run = read_trajectory(expect_equal(1, "--mirror.when_behind skip") / "native.h5");
  ASSERT_TRUE(run.audits);
  EXPECT_EQ(run.audits->step, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}))
      << "the skipped ones are told";
}

TEST_F(TrainingBits, AreTheSameOnTwoAndThreeRanks) {
  expect_equal(2, "--mirror.mode both --mirror.scope microbatch");
  expect_equal(2, "--mirror.mode both --mirror.when_behind skip --mirror.rank 0");
  expect_equal(3, "--mirror.scope microbatch --mirror.rank 1");
  expect_equal(3, "--mirror.mode free", 0);
}

// All base weights before the first update and after the last, one in turn at each audit between; they stay
// what they were.
TEST_F(TrainingBits, BaseWeightsInMemoryAreRecorded) {
  const fs::path run =
      bench_.train({.ranks = 2, .options = "--train.updates 3 --eval.every 3 --batch.micro 2"});
  const Trajectory native = read_trajectory(run / "native.h5");
  ASSERT_TRUE(native.load && native.load->memory);
  const auto& memory = *native.load->memory;
  const std::size_t n = native.load->name.size();
  ASSERT_EQ(memory.step.size(), 2 * n + 3);
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(memory.step[i], 0);
    EXPECT_EQ(memory.tensor[i], static_cast<std::int64_t>(i));
    EXPECT_EQ(memory.step[n + 3 + i], 3);
    EXPECT_EQ(memory.digest[n + 3 + i], memory.digest[i]);
    EXPECT_EQ(memory.digest[i], native.load->digest[i]) << "a file of float32 lies in memory as it is";
  }
  for (std::size_t a = 0; a < 3; ++a) {
    EXPECT_EQ(memory.step[n + a], static_cast<std::int64_t>(a + 1));
    EXPECT_EQ(memory.tensor[n + a], static_cast<std::int64_t>(a));
    EXPECT_EQ(memory.digest[n + a], memory.digest[a]);
  }
}

TEST_F(TrainingBits, AreOthersWithAnotherAdapter) {
  const fs::path run = bench_.train({.options = cat(kOptions, "--seed.adapter 9"), .every = 0});
  EXPECT_GT(differences(reference_, run).size(), 10u);
}

// Which micro-batch is looked at goes round, so that every rank's come up.
TEST_F(TrainingBits, MicroBatchesAreAuditedInTurn) {
  const fs::path run = bench_.train(
      {.ranks = 2, .options = "--batch.micro 1 --train.updates 6 --eval.every 6 --mirror.scope microbatch"});
  const Trajectory native = read_trajectory(run / "native.h5");
  ASSERT_TRUE(native.audits);
  EXPECT_EQ(native.audits->micro_batch, (std::vector<std::int64_t>{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(native.audits->verdict, std::vector<Verdict>(6, Verdict::kPass)) << bench_.log();
}

// The free run's own numbers: near native's, and neither depends on ranks.
TEST_F(TrainingBits, AFreeRunStaysNearNative) {
  const fs::path one = bench_.train({.options = cat(kOptions, "--mirror.mode free"), .every = 0});
  const fs::path two = bench_.train({.ranks = 2, .options = cat(kOptions, "--mirror.mode both")});
  const Trajectory native = read_trajectory(one / "native.h5"), mirror = read_trajectory(one / "mirror.h5"),
                   again = read_trajectory(two / "mirror.h5");
  ASSERT_TRUE(mirror.complete && mirror.updates && mirror.evals && again.updates);
  EXPECT_EQ(mirror.updates->loss, again.updates->loss);
  EXPECT_EQ(mirror.evals->nll_sum, again.evals->nll_sum);
  EXPECT_EQ(mirror.updates->sample_ids, native.updates->sample_ids);
  EXPECT_EQ(mirror.updates->n_targets, native.updates->n_targets);
  EXPECT_EQ(mirror.evals->n_tokens, native.evals->n_tokens);
  EXPECT_EQ(mirror.evals->step, native.evals->step);
  EXPECT_EQ(mirror.evals->adapter_digest[0], native.evals->adapter_digest[0]) << "the first adapter is exact";
  EXPECT_EQ(mirror.load->digest, native.load->digest);
  EXPECT_EQ(mirror.render->digest, native.render->digest);
  // float32 against float64 over seven updates of a small model: far above what is seen, far below a fault.
  constexpr double kNear = 1e-4;
  for (std::size_t i = 0; i < mirror.updates->loss.size(); ++i)
    EXPECT_NEAR(mirror.updates->loss[i] / native.updates->loss[i], 1.0, kNear) << i;
  for (std::size_t i = 0; i < mirror.evals->loss.size(); ++i)
    EXPECT_NEAR(mirror.evals->loss[i] / native.evals->loss[i], 1.0, kNear) << i;
  std::vector<std::int64_t> steps;
  for (const auto& [step, file] : mirror.snapshots) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 6}));
}

}  // namespace
}  // namespace tandem::audit_test
