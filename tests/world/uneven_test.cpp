// Known fault R35: ranks with unequal work, or none, take the same number of updates and end; and the numbers
// are those of one rank.
#include <gtest/gtest.h>

#include <string>

#include "src/base/text.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem::world_test {
namespace {

class Uneven : public testing::Test {
 protected:
  void SetUp() override { support::make_tiny_model(folder_, "qwen3"); }

  // A row of n tokens, the last n_targets of them scored.
  static std::string row(int n, int n_targets) {
    std::string ids, marks;
    for (int i = 0; i < n; ++i) {
      ids += cat(i ? "," : "", 1 + (i * 7 + n) % 40);
      marks += cat(i ? "," : "", i >= n - n_targets ? 1 : 0);
    }
    return cat("{\"ids\":[", ids, "],\"targets\":[", marks, "]}\n");
  }

  // The adapter after `options`, on that many ranks; the updates that were made.
  std::string trained(int ranks, const std::string& options, const std::string& updates) {
    const std::string out = cat("run", ranks);
    const support::ShellResult result =
        support::run_shell(folder_, cat("MPI_TEST_LIMIT=60 ", TANDEM_MPIRUN, " ", ranks, " ", TANDEM_PROGRAM,
                                        " train --model model-qwen3 --data.train rows.jsonl --data.held_out "
                                        "rows.jsonl --threads 1 --overwrite "
                                        "--run.out ",
                                        out, " ", options));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find(cat("trained ", updates, " updates")), std::string::npos)
        << result.out << result.err;
    return support::read_text(folder_ / out / "adapter" / "adapter_model.safetensors");
  }

  // On 1, 2, 3 and 4 ranks.
  void expect_alike(const std::string& options, const std::string& updates) {
    const std::string one = trained(1, options, updates);
    ASSERT_FALSE(one.empty());
    for (const int ranks : {2, 4})
      EXPECT_EQ(trained(ranks, options, updates), one) << ranks << " ranks, " << options;
  }

  support::TempFolder folder_;
};

TEST_F(Uneven, FiveSamplesOneAnUpdateLeaveARankWithoutWork) {
  support::write_text(folder_ / "rows.jsonl", row(6, 3) + row(20, 9) + row(4, 2) + row(31, 30) + row(9, 1));
  expect_alike("--batch.global 1 --batch.micro 1 --train.epochs 2", "10");
}

TEST_F(Uneven, ThreeSamplesOnFourRanks) {
  support::write_text(folder_ / "rows.jsonl", row(6, 3) + row(20, 9) + row(4, 2));
  expect_alike("--batch.global 16 --batch.micro 1 --train.epochs 3", "3");
}

TEST_F(Uneven, SamplesThatAreLeftOutOrHaveNothingToScore) {
  // Of the seven, two are too long and one has no target: four count, and one gives nothing.
  support::write_text(folder_ / "rows.jsonl",
                      row(6, 3) + row(60, 9) + row(4, 0) + row(70, 5) + row(31, 30) + row(9, 1) + row(12, 4));
  expect_alike("--data.max_tokens 40 --data.truncate drop --batch.global 2 --batch.micro 1 --train.epochs 2",
               "6");
}

}  // namespace
}  // namespace tandem::world_test
