// Known fault R57: the number of threads follows the CPUs that a rank may use, which the log names.
#include <gtest/gtest.h>

#include <string>

#include "src/base/text.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem::world_test {
namespace {

class Placed : public testing::Test {
 protected:
  void SetUp() override {
    support::make_tiny_model(folder_, "qwen3");
    support::write_text(folder_ / "rows.jsonl", "{\"ids\":[1,2,3,4,5,6],\"targets\":[0,0,0,1,1,1]}\n");
  }

  // The log of a run; $cpu is the first CPU that this process may use.
  std::string log(const std::string& before, const std::string& options = "") {
    const support::ShellResult result = support::run_shell(
        folder_, cat("cpu=$(taskset -pc $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/'); echo cpu $cpu\n", before, " ",
                     TANDEM_PROGRAM,
                     " train --model model-qwen3 --data.train rows.jsonl --train.updates 1 --overwrite "
                     "--run.out run ",
                     options));
    EXPECT_EQ(result.code, 0) << result.err;
    cpu_ = support::lines_of(result.out)[0].substr(4);
    return support::read_text(folder_ / "run" / "run.log");
  }

  support::TempFolder folder_;
  std::string cpu_;
};

TEST_F(Placed, OneCpuMeansOneThread) {
  const std::string text = log("taskset -c $cpu");
  EXPECT_NE(text.find(cat(": 1 thread on CPU ", cpu_, "\n")), std::string::npos) << text;
  EXPECT_EQ(text.find("of this node for CPU"), std::string::npos) << text;
}

TEST_F(Placed, MoreThreadsThanCpusAreWarnedOf) {
  const std::string text = log("taskset -c $cpu", "--threads 2");
  EXPECT_NE(text.find(cat(": 2 threads on CPU ", cpu_, " (oversubscribed)\n")), std::string::npos) << text;
  EXPECT_NE(text.find(cat(": 2 threads and 1 rank of this node for CPU ", cpu_)), std::string::npos) << text;
}

TEST_F(Placed, TwoRanksThatMpirunHoldsToOneCpuAreWarnedOf) {
  const std::string text = log(cat("taskset -c $cpu ", TANDEM_MPIRUN, " 2"));
  for (const int rank : {0, 1}) {
    EXPECT_NE(text.find(cat("rank ", rank, " on ")), std::string::npos) << text;
  }
  EXPECT_NE(text.find(cat(": 1 thread and 2 ranks of this node for CPU ", cpu_)), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::world_test
