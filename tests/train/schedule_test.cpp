#include "src/train/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

RunSpec spec_of(const std::string& schedule, std::int64_t updates, std::int64_t warmup) {
  RunSpec spec;
  spec.optim_schedule = schedule;
  spec.train_updates = updates;
  spec.optim_warmup = warmup;
  spec.optim_lr = 0.001;
  spec.optim_lr_min = 0.0001;
  return spec;
}

TEST(Schedule, WarmsUpLinearlyToTheFullRate) {
  const RunSpec spec = spec_of("cosine", 100, 10);
  EXPECT_EQ(learning_rate(spec, 1), 0.001 * 1.0 / 10.0);
  EXPECT_EQ(learning_rate(spec, 10), 0.001);
}

TEST(Schedule, EndsAtTheMinimum) {
  EXPECT_NEAR(learning_rate(spec_of("cosine", 100, 10), 55), (0.001 + 0.0001) / 2, 1e-18);
  EXPECT_NEAR(learning_rate(spec_of("cosine", 100, 10), 100), 0.0001, 1e-18);
  EXPECT_EQ(learning_rate(spec_of("linear", 100, 0), 100), 0.0001);
  EXPECT_EQ(learning_rate(spec_of("linear", 100, 0), 50), 0.0001 + (0.001 - 0.0001) * 50.0 / 100.0);
  EXPECT_EQ(learning_rate(spec_of("constant", 100, 0), 100), 0.001);
}

TEST(Schedule, SaysWhereNothingIsLearned) {
  RunSpec spec = spec_of("cosine", 1, 0);
  EXPECT_EQ(why_nothing_is_learned(spec), "") << "lr_min is not 0";
  spec.optim_lr_min = 0.0;
  EXPECT_NE(why_nothing_is_learned(spec).find("optim.lr_min = 0 (optim.schedule = cosine)"),
            std::string::npos);
  spec.optim_schedule = "linear";
  EXPECT_NE(why_nothing_is_learned(spec), "");
  spec.optim_schedule = "constant";
  EXPECT_EQ(why_nothing_is_learned(spec), "");
  spec = spec_of("cosine", 2, 1);
  spec.optim_lr_min = 0.0;
  EXPECT_EQ(why_nothing_is_learned(spec), "");
  spec.optim_lr = 0.0;
  EXPECT_EQ(why_nothing_is_learned(spec), "optim.lr = 0: nothing is learned");
}

TEST(Clip, ScalesOnlyLargeNorms) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
}

}  // namespace
}  // namespace tandem
