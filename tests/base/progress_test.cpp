#include "src/base/progress.hpp"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ProgressBar, ShowsTheShareAndTheTimeLeft) {
  const ProgressBar bar("tokenising rows.jsonl");
  EXPECT_EQ(bar.line(0, 0), "tokenising rows.jsonl [--------------------]   0 %");
  EXPECT_EQ(bar.line(0.301, 3), "tokenising rows.jsonl [######--------------]  30 %  7 s left");
  EXPECT_EQ(bar.line(0.5, 0.2), "tokenising rows.jsonl [##########----------]  50 %");
  EXPECT_EQ(bar.line(1, 10), "tokenising rows.jsonl [####################] 100 %");
}

}  // namespace
}  // namespace tandem
