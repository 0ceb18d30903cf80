// Synthetic timings: what is slow is named once, what only varies is not.
#include "src/train/phase_watch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "src/train/slow_phases.hpp"

namespace tandem {
namespace {

struct Named {
  int update;
  double factor;
};

// One phase that is all of its updates' time, 200 tokens each.
std::vector<Named> watched(
    int updates, const std::function<double(int)>& seconds,
    const std::function<double(int)>& tokens = [](int) { return 200.0; }) {
  PhaseWatch watch;
  std::vector<Named> named;
  double clock = 100.0;
  for (int t = 1; t <= updates; ++t) {
    clock += seconds(t);
    if (const auto factor = watch.add(seconds(t), tokens(t), clock)) named.push_back({t, *factor});
  }
  return named;
}

TEST(PhaseWatch, ASlowDownIsNamedOnceAtItsEighthUpdate) {
  const auto named = watched(400, [](int t) { return t > 100 && t <= 160 ? 3.0 : 1.0; });
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].update, 108);
  EXPECT_DOUBLE_EQ(named[0].factor, 3.0);
}

TEST(PhaseWatch, OneThatLastsIsNamedOnceAndOneAfterRecoveryAgain) {
  EXPECT_EQ(watched(2000, [](int t) { return t > 100 ? 3.0 : 1.0; }).size(), 1u);
  const auto named =
      watched(400, [](int t) { return (t > 100 && t <= 120) || (t > 200 && t <= 220) ? 5.0 : 1.0; });
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[1].update, 208);
  // Seven normal ones are no recovery.
  EXPECT_EQ(
      watched(200, [](int t) { return t > 100 && (t <= 110 || t > 117) && t < 130 ? 5.0 : 1.0; }).size(), 1u);
}

TEST(PhaseWatch, FewerThanEightOrLessThanTwiceAreNotNamed) {
  EXPECT_TRUE(
      watched(400, [](int t) { return t % 8 != 0 ? (t > 100 && t < 150 ? 9.0 : 1.0) : 1.0; }).empty());
  EXPECT_TRUE(watched(400, [](int t) { return t > 100 ? 1.9 : 1.0; }).empty());
  EXPECT_TRUE(watched(400, [](int t) { return t % 10 == 0 ? 50.0 : 1.0; }).empty()) << "outliers";
  EXPECT_TRUE(watched(30, [](int t) { return t > 20 ? 9.0 : 1.0; }).empty()) << "too little is known yet";
}

// Log-normal times whose standard deviation is half of the median: one in twelve is above twice the median,
// eight in a row once in 10^8.
TEST(PhaseWatch, NoiseIsNotNamed) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> time(0.0, 0.5);
    std::vector<double> seconds(3001);
    for (double& s : seconds) s = time(random);
    EXPECT_TRUE(watched(3000, [&](int t) { return seconds[static_cast<std::size_t>(t)]; }).empty()) << seed;
    // The same noise, and eight times the time from update 1001 on: of those, one in 400 is below twice the
    // median and begins the count anew.
    const auto slow =
        watched(1040, [&](int t) { return (t > 1000 ? 8.0 : 1.0) * seconds[static_cast<std::size_t>(t)]; });
    ASSERT_EQ(slow.size(), 1u) << seed;
    EXPECT_GT(slow[0].update, 1000);
  }
}

// A token's time grows with its sequence (attention): 1 + length / 1000.
TEST(PhaseWatch, SequencesThatBecomeLongerAreNotNamed) {
  const auto length = [](int t) { return 100.0 + 3.0 * t; };
  EXPECT_TRUE(watched(
                  2000, [&](int t) { return length(t) * (1.0 + length(t) / 1000.0); }, length)
                  .empty());
  // Rows of very unequal lengths, at random.
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> any(50.0, 4000.0);
    std::vector<double> lengths(2001);
    for (double& l : lengths) l = any(random);
    const auto drawn = [&](int t) { return lengths[static_cast<std::size_t>(t)]; };
    EXPECT_TRUE(watched(
                    2000, [&](int t) { return drawn(t) * (1.0 + drawn(t) / 1000.0); }, drawn)
                    .empty())
        << seed;
  }
}

TEST(PhaseWatch, UpdatesWithoutWorkAndShortPhasesAreNotJudged) {
  // Nothing of its own to do in every other update.
  const auto named = watched(
      600, [](int t) { return t % 2 ? (t > 300 ? 4.0 : 1.0) : 0.001; },
      [](int t) { return t % 2 ? 200.0 : 0.0; });
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].update, 315);
  PhaseWatch watch;
  for (int t = 1; t <= 400; ++t)
    EXPECT_FALSE(watch.add(t > 200 ? 0.003 : 0.001, 1.0, 1.0 * t)) << "0.2 % of the time";
}

// A control group that gives a third of the CPU lets an update of 12 ms run at full speed, and the next ones
// wait for the rest of a tenth of a second.
TEST(PhaseWatch, ShortUpdatesOfWhichOnlySomeWaitAreNamed) {
  const auto throttled = [](int t) { return t > 1000 && t % 3 == 0 ? 0.08 : 0.012; };
  const auto named = watched(2000, throttled);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_GT(named[0].update, 1000);
  EXPECT_LT(named[0].update, 1070) << "2 s";
  EXPECT_NEAR(named[0].factor, (0.08 + 2 * 0.012) / 3 / 0.012, 0.3);
  // One in thirty that waits is a tenth of the time.
  EXPECT_TRUE(watched(4000, [](int t) { return t % 30 == 0 ? 0.08 : 0.012; }).empty());
}

TEST(SlowPhases, TravelAsTextWithWhatWasSeen) {
  SlowPhases rank(1, "node07"), first(0, "node01");
  PhaseTimes times;
  for (int t = 1; t <= 100; ++t) {
    times.gradient_s = t > 60 ? 0.5 : 0.1;
    times.gradient_tokens = 200;
    times.all_reduce_s = t > 60 ? 0.9 : 0.1;
    times.step_s = 0.01;
    const UpdateTime whole{times.gradient_s + times.all_reduce_s, 400};
    rank.update(t, times, whole, 2.0 * t);
    first.update(t, times, whole, 2.0 * t);
    EXPECT_EQ(rank.any(), t >= 68) << t;
  }
  const std::vector<SlowRow> named = SlowPhases::read({rank.take()});
  ASSERT_EQ(named.size(), 1u) << "the all-reduce is rank 0's to tell";
  EXPECT_FALSE(rank.any());
  EXPECT_EQ(named[0].step, 68);
  EXPECT_EQ(named[0].rank, 1);
  EXPECT_EQ(named[0].phase, "gradient");
  EXPECT_EQ(named[0].host, "node07");
  EXPECT_DOUBLE_EQ(named[0].factor, 5.0);
  EXPECT_NE(named[0].seen.find("load average"), std::string::npos) << named[0].seen;
  EXPECT_EQ(SlowPhases::line(named[0]).find(
                "rank 1 on node07: gradient 5.0 times as slow as usual, seen at update 68: "),
            0u)
      << SlowPhases::line(named[0]);
  // What all ranks are in names the rank that fared worst.
  const std::vector<SlowRow> of_all = SlowPhases::read({first.take(), "1e9\tnode07\tmuch\n"});
  ASSERT_EQ(of_all.size(), 3u);
  EXPECT_EQ(of_all[1].rank, -1);
  EXPECT_EQ(of_all[1].phase, "all-reduce");
  EXPECT_EQ(of_all[1].seen, "rank 1 on node07 fared worst: much");
  EXPECT_EQ(of_all[2].phase, "update");
  EXPECT_DOUBLE_EQ(of_all[2].factor, 7.0);
  EXPECT_TRUE(SlowPhases::read({rank.take(), first.take()}).empty());
}

TEST(SlowPhases, EvaluationsAreJudgedApart) {
  SlowPhases slow(0, "a");
  PhaseTimes times;
  times.evaluation_tokens = 1000;
  for (int e = 1; e <= 40; ++e) {
    times.evaluation_s = e > 30 ? 9.0 : 3.0;
    slow.evaluation(10 * e, times, 100.0 * e);
  }
  const std::vector<SlowRow> named = SlowPhases::read({slow.take()});
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].phase, "evaluation");
  EXPECT_EQ(named[0].step, 380);
}

}  // namespace
}  // namespace tandem
