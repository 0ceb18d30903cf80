#include "src/audit/mismatch_policy.hpp"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(MismatchPolicy, WhatIsExactOrBoundedEndsTheRunAtOnce) {
  EXPECT_TRUE(MismatchPolicy().ends_with(Verdict::kExact));
  EXPECT_TRUE(MismatchPolicy().ends_with(Verdict::kBound));
  EXPECT_FALSE(MismatchPolicy().ends_with(Verdict::kPass));
  EXPECT_FALSE(MismatchPolicy().ends_with(Verdict::kSkipped));
}

TEST(MismatchPolicy, WhatIsCalibratedMayFailOnce) {
  MismatchPolicy policy;
  EXPECT_FALSE(policy.ends_with(Verdict::kCalibrated));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(policy.ends_with(Verdict::kPass));
  EXPECT_TRUE(policy.ends_with(Verdict::kCalibrated)) << "the second of five";
}

TEST(MismatchPolicy, ForgetsAMissAfterFiveAudits) {
  MismatchPolicy policy;
  for (int round = 0; round < 4; ++round) {
    EXPECT_FALSE(policy.ends_with(Verdict::kCalibrated)) << round;
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(policy.ends_with(Verdict::kPass));
  }
}

TEST(MismatchPolicy, SkippedAuditsDoNotCount) {
  MismatchPolicy policy;
  EXPECT_FALSE(policy.ends_with(Verdict::kCalibrated));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(policy.ends_with(Verdict::kSkipped));
  EXPECT_TRUE(policy.ends_with(Verdict::kCalibrated));
}

}  // namespace
}  // namespace tandem
