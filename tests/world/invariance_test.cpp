// The world size is invisible: the program `tandem train` on 1 to 5 ranks with 1 to 4 threads each leaves the
// same bits in every dataset of the trajectory, in every snapshot (gradients, adapter, moments) and in the
// adapter's file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "src/train/order.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/world/hdf5_differences.hpp"

namespace tandem::world_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSamples = 20, kGlobal = 6, kUpdates = 9, kSeed = 11;

// Tokenised rows: sample i has a length of its own, up to `longest`, and targets in several places unless it
// is in `without`.
void write_rows(const fs::path& file, std::int64_t n, std::uint64_t seed, std::uint64_t longest,
                const std::vector<std::int64_t>& without) {
  const RandomStream random(seed, "rows");
  std::uint64_t at = 0;
  std::ostringstream rows;
  for (std::int64_t i = 0; i < n; ++i) {
    // One sample of a single token has nothing to score; the others are ragged.
    const std::int64_t length = i == 4 ? 1 : 3 + static_cast<std::int64_t>(random.draw(at++) % (longest - 2));
    const bool scored = std::find(without.begin(), without.end(), i) == without.end();
    std::string ids, targets;
    for (std::int64_t p = 0; p < length; ++p) {
      ids += cat(p ? "," : "", random.draw(at++) % support::kTinyVocab);
      targets += cat(p ? "," : "", scored && random.draw(at++) % 3 != 0 ? 1 : 0);
    }
    rows << "{\"ids\":[" << ids << "],\"targets\":[" << targets << "]}\n";
  }
  support::write_text(file, rows.str());
}

struct World {
  int ranks = 1, threads = 1;
  std::string deal = "least_loaded";
  int micro = 2;
  std::int64_t seed = kSeed;
};

class WorldInvariance : public testing::Test {
 protected:
  void SetUp() override {
    model_ = support::make_tiny_model(folder_, "qwen3");
    write_data(66);
  }

  void write_data(std::uint64_t longest) {
    // The first epoch's last batch is short, and nothing in it is scored; one more sample without targets
    // elsewhere.
    BatchOrder order(kSeed, kSamples, kGlobal);
    const std::int64_t last = order.updates_per_epoch();
    std::vector<std::int64_t> without(order.batch(last).begin(), order.batch(last).end());
    ASSERT_EQ(without.size(), 2u);
    without.push_back(order.batch(1)[3]);
    write_rows(folder_ / "train.jsonl", kSamples, 1, longest, without);
    write_rows(folder_ / "held_out.jsonl", 7, 2, longest, {5});
  }

  // Runs the program; returns the run's folder.
  fs::path train(const World& world) {
    const fs::path out = folder_ / cat("run", n_runs_++);
    const std::string command =
        cat(TANDEM_MPIRUN, " ", world.ranks, " ", TANDEM_PROGRAM, " train --model ", model_.string(),
            " --data.train ", (folder_ / "train.jsonl").string(), " --data.held_out ",
            (folder_ / "held_out.jsonl").string(), " --run.out ", out.string(),
            " --lora.rank 4 --lora.alpha 8 --optim.lr 0.01 --optim.lr_min 0.001 --optim.weight_decay 0.1",
            " --batch.global ", kGlobal, " --batch.micro ", world.micro, " --train.updates ", kUpdates,
            " --eval.every 4 --observe.every 1 --snapshot.every 1 --snapshot.what adapter,m,v,gradient",
            " --seed.order ", kSeed, " --seed.adapter ", world.seed, " --threads ", world.threads,
            " --batch.deal ", world.deal, " > ", (folder_ / "log").string(), " 2>&1");
    EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << support::read_text(folder_ / "log");
    return out;
  }

  std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
    // How it was computed, and when, is recorded; nothing else may differ.
    const auto may_differ = [](const std::string& path) {
      return path.starts_with("/provenance@") || path.starts_with("/execution/") ||
             path.starts_with("/memory/") || path.starts_with("/slow/") || path.ends_with("/seconds") ||
             path == "/@written_at";
    };
    std::vector<std::string> all;
    std::vector<std::string> names = {"native.h5"};
    for (const auto& entry : fs::directory_iterator(a / "native.snapshots")) {
      names.push_back(cat("native.snapshots/", entry.path().filename().string()));
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(kUpdates) + 1);
    for (const std::string& name : names) {
      const FileComparison result = compare_hdf5(a / name, b / name, may_differ);
      if (name == "native.h5") {
        for (const char* path : {"/update/loss",
                                 "/update/grad_norm",
                                 "/update/clip",
                                 "/update/checksum",
                                 "/update/adapter_checksum",
                                 "/update/sample_ids",
                                 "/eval/nll_sum",
                                 "/eval/adapter_digest",
                                 "/observed/tensor_grad_norm",
                                 "/probe/sample",
                                 "/probe/nll",
                                 "/probe/target_logit",
                                 "/probe/topk_id",
                                 "/probe/topk_logit",
                                 "/activation/rms",
                                 "/activation/absmax",
                                 "/activation/ba_norm",
                                 "/activation/update_norm",
                                 "/render/digest",
                                 "/load/digest"}) {
          EXPECT_NE(std::find(result.compared.begin(), result.compared.end(), path), result.compared.end())
              << path;
        }
      } else {
        // A and B of at least 2 layers and 7 modules; adapter, m, v, gradient.
        EXPECT_GE(result.compared.size(), 2u * 7 * 2 * 4) << name;
      }
      for (const std::string& line : result.differences) all.push_back(cat(name, ": ", line));
    }
    for (const char* name :
         {"adapter/adapter_model.safetensors", "adapter/adapter_config.json", "spec.txt"}) {
      EXPECT_TRUE(fs::exists(a / name)) << name;
      if (support::read_text(a / name) != support::read_text(b / name)) all.push_back(cat(name, " differs"));
    }
    return all;
  }

  void expect_equal(const fs::path& reference, const World& world) {
    const fs::path run = train(world);
    EXPECT_EQ(differences(reference, run), std::vector<std::string>())
        << world.ranks << " ranks, " << world.threads << " threads, " << world.deal << ", micro-batch "
        << world.micro;
    fs::remove_all(run);
  }

  support::TempFolder folder_;
  fs::path model_;
  int n_runs_ = 0;
};

// The case is the one meant, so that equal runs say something.
TEST_F(WorldInvariance, TheRunHasAShortBatchAnUpdateWithoutTargetsAndLearns) {
  const Trajectory run = read_trajectory(train({}) / "native.h5");
  ASSERT_TRUE(run.complete);
  ASSERT_TRUE(run.updates);
  const auto& update = *run.updates;
  ASSERT_EQ(update.loss.size(), static_cast<std::size_t>(kUpdates));
  std::int64_t steps = 0;
  for (std::size_t t = 0; t < update.loss.size(); ++t) {
    const bool empty = t == 3;
    EXPECT_EQ(std::isnan(update.loss[t]), empty) << t;
    EXPECT_EQ(update.n_targets[t] == 0, empty) << t;
    EXPECT_EQ(update.n_samples[t], t % 4 == 3 ? 2 : 6) << t;
    steps += empty ? 0 : 1;
    EXPECT_EQ(update.optimizer_step[t], steps) << t;
    EXPECT_GT(update.lr[t], 0.0) << t;
  }
  EXPECT_EQ(update.adapter_checksum[3], update.adapter_checksum[2])
      << "an update without targets made a step";
  ASSERT_TRUE(run.evals);
  EXPECT_EQ(run.evals->step, (std::vector<std::int64_t>{0, 4, 8, 9}));
  // The probe is spread over several micro-batches, so over several ranks.
  ASSERT_TRUE(run.probe && run.activations);
  EXPECT_EQ(run.probe->rows, 4);
  EXPECT_EQ(run.activations->rows, 4);
  EXPECT_GT(run.probe->tokens.sample.back(), 2);
  // Update 4 has nothing to score and changes nothing; 8 and 9 do.
  const std::vector<double>& change = run.activations->update_norm;
  const auto row = [&](std::int64_t e) {
    const auto at = change.begin() + e * run.activations->n_tensors;
    return std::vector<double>(at, at + run.activations->n_tensors);
  };
  const std::vector<double> none(static_cast<std::size_t>(run.activations->n_tensors), 0.0);
  EXPECT_EQ(row(0), none);
  EXPECT_EQ(row(1), none);
  EXPECT_EQ(std::count(change.begin(), change.end(), 0.0), 2 * run.activations->n_tensors);
}

// snapshot.every and snapshot.what: at which updates, and which groups.
TEST_F(WorldInvariance, SnapshotsAreThoseAskedFor) {
  const fs::path out = folder_ / "snapshots";
  const std::string command =
      cat(TANDEM_PROGRAM, " train --model ", model_.string(), " --data.train ",
          (folder_ / "train.jsonl").string(), " --run.out ", out.string(), " --batch.global ", kGlobal,
          " --train.updates 8 --snapshot.every 3 --snapshot.what gradient,m --threads 1 > ",
          (folder_ / "log").string(), " 2>&1");
  ASSERT_EQ(std::system(command.c_str()), 0) << support::read_text(folder_ / "log");
  const Trajectory run = read_trajectory(out / "native.h5");
  ASSERT_TRUE(run.adapter);
  EXPECT_FALSE(run.evals || run.probe || run.activations) << "no held-out set";
  std::vector<std::int64_t> steps;
  for (const auto& [step, file] : run.snapshots) {
    steps.push_back(step);
    for (const char* part : {"m", "gradient"})
      EXPECT_EQ(read_snapshot(file, part, *run.adapter).size(), run.adapter->names.size());
    for (const char* part : {"adapter", "v"}) EXPECT_THROW(read_snapshot(file, part, *run.adapter), Error);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 6}));
  EXPECT_EQ(std::distance(fs::directory_iterator(out / "native.snapshots"), fs::directory_iterator()), 2);
}

TEST_F(WorldInvariance, ADifferentAdapterIsSeen) {
  const auto lines = differences(train({}), train({.seed = kSeed + 1}));
  for (const char* path :
       {"native.h5: /update/loss differs", "native.h5: /update/checksum differs",
        "native.h5: /eval/nll_sum differs", "native.h5: /probe/nll differs",
        "native.h5: /activation/ba_norm differs", "adapter/adapter_model.safetensors differs"}) {
    EXPECT_NE(std::find(lines.begin(), lines.end(), path), lines.end()) << path;
  }
}

TEST_F(WorldInvariance, TheSameRunTwiceHasTheSameBits) {
  const fs::path reference = train({.ranks = 3, .threads = 2});
  expect_equal(reference, {.ranks = 3, .threads = 2});
}

TEST_F(WorldInvariance, MicroBatchesOfOneSampleDealtInAnyOrderHaveTheSameBits) {
  const fs::path reference = train({.micro = 1});
  expect_equal(reference, {.ranks = 4, .threads = 1, .deal = "round_robin", .micro = 1});
  expect_equal(reference, {.ranks = 4, .threads = 1, .deal = "reversed", .micro = 1});
  expect_equal(reference, {.ranks = 5, .threads = 2, .deal = "least_loaded", .micro = 1});
}

// Wide enough that products are cut into several blocks for the threads, and samples long enough for several
// blocks of queries.
TEST_F(WorldInvariance, AWiderModelHasTheSameBits) {
  InitModelOptions options;
  options.out = model_ = folder_ / "wide";
  options.hidden = 384, options.layers = 2, options.heads = 6, options.kv_heads = 2, options.head_dim = 64;
  options.intermediate = 640, options.vocab = 1500;
  std::ostringstream said;
  init_model_command(options, said);
  write_data(300);
  const fs::path reference = train({});
  expect_equal(reference, {.ranks = 1, .threads = 4});
  expect_equal(reference, {.ranks = 2, .threads = 3});
  expect_equal(reference, {.ranks = 3, .threads = 1, .deal = "reversed"});
}

class WorldInvarianceOn : public WorldInvariance, public testing::WithParamInterface<int> {};

// An update has 3 micro-batches, the short one 1: on 4 and 5 ranks some never have any.
TEST_P(WorldInvarianceOn, OneToFourThreadsAndOtherDealsHaveTheSameBits) {
  const int ranks = GetParam();
  const fs::path reference = train({});
  for (int threads = ranks == 1 ? 2 : 1; threads <= 4; ++threads) expect_equal(reference, {ranks, threads});
  if (ranks > 1) {
    expect_equal(reference, {ranks, 1, "reversed"});
    expect_equal(reference, {ranks, 1, "round_robin"});
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorldInvarianceOn, testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace tandem::world_test
