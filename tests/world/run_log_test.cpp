// run.log holds what the run printed, on stderr and stdout, of every rank and every process that went on with
// it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_says.hpp"
#include "tests/support/shell.hpp"
#include "tests/world/runs.hpp"

namespace tandem::world_test {
namespace {

class RunLogFile : public Runs {
 protected:
  static std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines = support::lines_of(text);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

TEST_F(RunLogFile, HoldsEveryLineAndOfAResumedRunThoseBefore) {
  const fs::path out = folder_ / "run";
  const Ended first = train(2, out, "--checkpoint.every 4");
  ASSERT_EQ(first.code, 0) << first.text;
  const std::string log = support::read_text(out / "run.log");
  EXPECT_EQ(sorted_lines(log), sorted_lines(first.text));
  EXPECT_TRUE(log.starts_with("rank 0 on ")) << log;
  fs::remove(out / "native.h5");  // not finished then
  const Ended resumed = train(1, out, "--checkpoint.every 4 --resume auto");
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  const std::string both = support::read_text(out / "run.log");
  ASSERT_TRUE(both.starts_with(log + "run.log continued at ")) << both;
  std::string added = both.substr(log.size());
  added.erase(0, added.find('\n') + 1);
  EXPECT_EQ(sorted_lines(added), sorted_lines(resumed.text));
  const Ended over = train(1, out, "--overwrite");
  EXPECT_EQ(sorted_lines(support::read_text(out / "run.log")), sorted_lines(over.text));
}

TEST_F(RunLogFile, HoldsTheErrorThatEndedTheRun) {
  const fs::path out = folder_ / "run";
  std::string words = command(2, out, "");
  words.replace(words.find("--optim.lr 0.01"), 15, "--optim.lr 1e10");
  const int status = std::system(cat(words, " > ", (folder_ / "log").string(), " 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string log = support::read_text(out / "run.log");
  EXPECT_SAYS(support::lines_of(log).back(), "[rank ");
  EXPECT_EQ(sorted_lines(log), sorted_lines(support::read_text(folder_ / "log")));
}

TEST_F(RunLogFile, HoldsTheUpdatesThatATerminalShowsInOneLine) {
  const fs::path out = folder_ / "run";
  const Ended ended = train(1, out, "--log.every 5", "TANDEM_STDERR_IS_TERMINAL=1 ");
  ASSERT_EQ(ended.code, 0);
  EXPECT_SAYS(ended.text, "\r\x1b[Kupdate 3/10");
  const std::string log = support::read_text(out / "run.log");
  for (const char* line : {"\nupdate 1/10 ", "\nupdate 5/10 ", "\nupdate 10/10 "}) EXPECT_SAYS(log, line);
  EXPECT_EQ(log.find("update 3/10"), log.npos);
  EXPECT_EQ(log.find('\r'), log.npos) << log;
}

}  // namespace
}  // namespace tandem::world_test
