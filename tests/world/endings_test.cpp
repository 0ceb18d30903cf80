// A rank that fails, or is killed, ends the whole run of `tandem train` soon, with its error as the cause.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>

#include "io/trajectory_reader.hpp"
#include "src/base/text.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem::world_test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 3, kOdd = 1;

class Endings : public testing::Test {
 protected:
  struct Result {
    int code = 0;
    double seconds = 0.0;
    std::string text;  // stdout and stderr
  };

  void SetUp() override {
    model_ = support::make_tiny_model(folder_, "qwen3");
    support::write_text(folder_ / "rows.jsonl", kRow + kRow + kRow);
  }

  std::string train(const fs::path& data, std::int64_t updates = 3) const {
    return cat(TANDEM_PROGRAM, " train --model ", model_.string(), " --data.train ", data.string(),
               " --run.out ", (folder_ / "run").string(), " --train.updates ", updates,
               " --threads 1 --batch.global 3");
  }

  // On kRanks ranks, rank kOdd with a command of its own.
  Result run(const std::string& command, const std::string& of_odd_rank) const {
    const fs::path script = folder_ / "rank.sh";
    support::write_text(script, cat("if [ \"$OMPI_COMM_WORLD_RANK\" = ", kOdd, " ]; then ", of_odd_rank,
                                    "; else exec ", command, "; fi\n"));
    return run_shell(cat("MPI_TEST_LIMIT=60 ", TANDEM_MPIRUN, " ", kRanks, " bash ", script.string()));
  }

  Result run_shell(const std::string& command) const {
    const fs::path log = folder_ / "log";
    const auto start = std::chrono::steady_clock::now();
    const int status = std::system(cat(command, " > ", log.string(), " 2>&1").c_str());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), elapsed.count(),
            support::read_text(log)};
  }

  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  static void expect_end(const Result& result, int code, const std::string& cause) {
    EXPECT_EQ(result.code, code) << result.text;
    EXPECT_LT(result.seconds, 30.0) << result.text;
    EXPECT_EQ(count(result.text, cause), 1u) << "not said once: " << cause << "\n" << result.text;
  }

  const std::string kRow = "{\"ids\":[1,2,3,4,5,6],\"targets\":[0,0,0,1,1,1]}\n";
  support::TempFolder folder_;
  fs::path model_;
};

TEST_F(Endings, TheSameCommandOnEveryRankWorks) {
  const Result result = run(train(folder_ / "rows.jsonl"), "exec " + train(folder_ / "rows.jsonl"));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_TRUE(fs::exists(folder_ / "run" / "native.h5"));
}

TEST_F(Endings, AFileThatOneRankLacksIsNamedOnceAndNothingIsWritten) {
  const fs::path absent = folder_ / "absent.jsonl";
  expect_end(run(train(folder_ / "rows.jsonl"), "exec " + train(absent)), 3, absent.string());
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Endings, ABadRowOfOneRankIsNamedOnce) {
  support::write_text(folder_ / "bad.jsonl", kRow + "{\"ids\":[1,2,\n" + kRow);
  expect_end(run(train(folder_ / "rows.jsonl"), "exec " + train(folder_ / "bad.jsonl")), 3, "bad.jsonl");
}

TEST_F(Endings, DataThatDifferBetweenRanksAreRefused) {
  support::write_text(folder_ / "other.jsonl",
                      kRow + kRow + "{\"ids\":[1,2,3,4,5,7],\"targets\":[0,0,0,1,1,1]}\n");
  expect_end(run(train(folder_ / "rows.jsonl"), "exec " + train(folder_ / "other.jsonl")), 3,
             "ranks read different things: data.train");
}

// A loss that is no longer finite is when one wants to see the updates before it.
TEST_F(Endings, ARunThatFailsKeepsTheUpdatesBefore) {
  const std::string diverges = train(folder_ / "rows.jsonl", 50) + " --optim.lr 1e10 --output.flush_s 3600";
  expect_end(run(diverges, "exec " + diverges), 1, "is not finite");
  const Trajectory trajectory = read_trajectory(folder_ / "run" / "native.h5");
  EXPECT_FALSE(trajectory.complete);
  ASSERT_TRUE(trajectory.updates.has_value());
  EXPECT_GE(trajectory.updates->rows, 1);
}

// MPI_Abort adds a page of its own.
TEST_F(Endings, AnErrorOfOneProcessAloneIsOneLine) {
  std::string command = train(folder_ / "rows.jsonl");
  command.replace(command.find("--threads 1"), 11, "--threads 2");
  const Result result = run_shell("OMP_THREAD_LIMIT=1 " + command);
  expect_end(result, 4, "OMP_THREAD_LIMIT");
  EXPECT_EQ(count(result.text, "MPI_ABORT"), 0u) << result.text;
}

TEST_F(Endings, AKilledRankEndsTheRun) {
  const std::string endless = train(folder_ / "rows.jsonl", 10'000'000);
  const Result result = run(endless, cat("timeout -s KILL 4 ", endless, "; kill -KILL $$"));
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.code, 124) << "the job had to be ended";
  EXPECT_NE(result.text.find("update 1/10000000"), std::string::npos)
      << "it was not training: " << result.text;
  EXPECT_LT(result.seconds, 30.0);
}

TEST_F(Endings, AStartThatMpiDoesNotUnderstandIsRefused) {
  expect_end(run_shell("OMPI_COMM_WORLD_SIZE=4 " + train(folder_ / "rows.jsonl")), 4, "srun --mpi=pmix");
  expect_end(run_shell("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 " + train(folder_ / "rows.jsonl")), 4,
             "SLURM_STEP_NUM_TASKS = 4");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  EXPECT_EQ(run_shell("SLURM_NTASKS=4 SLURM_PROCID=0 " + train(folder_ / "rows.jsonl")).code, 0)
      << "one plain process inside an allocation";
}

}  // namespace
}  // namespace tandem::world_test
