#include "src/compare/replicates.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/random.hpp"
#include "src/compare/compare.hpp"
#include "src/compare/statistics.hpp"
#include "tests/compare/synthetic.hpp"

namespace tandem {
namespace {

using support::synthetic;
using Series = std::vector<double>;

// A chaotic difference: grows from 1e-8 to 1e-4 and stays there; about normal (12 uniform numbers).
Series run_of(std::uint64_t seed, double shift = 0.0, double size = 1.0) {
  const RandomStream random(seed, "replicate");
  Series x;
  for (std::uint64_t t = 0; t < 30; ++t) {
    double normal = -6.0;
    for (std::uint64_t k = 0; k < 12; ++k) normal += random.unit(12 * t + k);
    x.push_back(2.0 +
                size * std::min(1e-4, 1e-8 * std::exp(0.5 * static_cast<double>(t))) * (normal + shift));
  }
  return x;
}

std::vector<Series> runs(std::size_t n, std::uint64_t seed) {
  std::vector<Series> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(run_of(seed + i));
  return all;
}

TEST(Envelope, ByRankRaisesFalseAlarmsAsOftenAsItSays) {
  int alarms = 0;
  constexpr int kPairs = 400;
  for (int k = 0; k < kPairs; ++k) {
    const auto found = envelope_of(run_of(7'000'000 + static_cast<std::uint64_t>(k)),
                                   runs(19, 1000 * static_cast<std::uint64_t>(k)));
    ASSERT_TRUE(found && found->by_rank);
    EXPECT_DOUBLE_EQ(found->false_alarms, 0.05);
    alarms += found->statistic > found->limit;
  }
  // Binomial(400, 0.05): 20 +- 4.4.
  EXPECT_NEAR(alarms, 20, 4 * 4.4);
}

TEST(Envelope, ByStudentRaisesFewFalseAlarmsAndSeesAShift) {
  int alarms = 0, seen = 0;
  for (std::uint64_t k = 0; k < 200; ++k) {
    const auto replicates = runs(8, 1000 * k);
    const auto clean = envelope_of(run_of(7'000'000 + k), replicates),
               shifted = envelope_of(run_of(7'000'000 + k, 30.0), replicates);
    ASSERT_TRUE(clean && shifted && !clean->by_rank);
    alarms += clean->statistic > clean->limit;
    seen += shifted->statistic > shifted->limit;
  }
  EXPECT_LE(alarms, 8) << "1 % of 200 and four standard deviations";
  EXPECT_GE(seen, 195);
}

// Student's t for 7 degrees at 1 % over 42 evaluations, times sqrt(1 + 1/8): VALIDATION's 7.3.
TEST(Envelope, OfEightReplicatesAndFortyTwoEvaluationsIsTheKnownOne) {
  EXPECT_NEAR(student_two_sided(7, 0.01 / 42) * std::sqrt(1 + 1.0 / 8), 7.3, 0.1);
  EXPECT_NEAR(student_two_sided(19, 0.01 / 42) * std::sqrt(1 + 1.0 / 20), 4.6, 0.1);
}

TEST(Envelope, AStackThatRoundsTenTimesAsMuchIsNoFault) {
  int raw = 0, scaled = 0;
  for (std::uint64_t k = 0; k < 100; ++k) {
    const Series candidate = run_of(7'000'000 + k, 0.0, 10.0);
    const auto replicates = runs(19, 1000 * k);
    raw += [&] {
      const auto e = envelope_of(candidate, replicates);
      return e->statistic > e->limit;
    }();
    scaled += [&] {
      const auto e = envelope_of(candidate, replicates, {.scale = 10.0});
      return e->statistic > e->limit;
    }();
  }
  EXPECT_GT(raw, 95);
  EXPECT_LT(scaled, 20);
}

// Of one state, replicates of a stack may have the same loss to the last bits; another stack rounds it
// otherwise.
TEST(Envelope, WhatOnePassRoundsIsNoFault) {
  const auto replicates = runs(19, 3000);
  const auto candidate = [](double off) {
    Series x = run_of(7'000'001);
    for (double& v : x) v += off;
    return x;
  };
  const OtherRounding rounding{.scale = 1.0, .pass = std::vector<double>(30, 1e-7)};
  const auto judged = [&](double off, const OtherRounding& r) {
    const auto e = envelope_of(candidate(off), replicates, r);
    return e->statistic > e->limit;
  };
  EXPECT_TRUE(judged(1e-7, {}));
  EXPECT_FALSE(judged(1e-7, rounding));
  EXPECT_TRUE(judged(4e-7, rounding));
  EXPECT_GT(envelope_of(candidate(0), replicates, rounding)->seen,
            envelope_of(candidate(0), replicates)->seen);
}

TEST(Envelope, NeedsReplicatesThatDiffer) {
  EXPECT_FALSE(envelope_of(run_of(1), runs(3, 5)));
  EXPECT_FALSE(envelope_of(run_of(1), std::vector<Series>(20, run_of(2))));
}

// Trajectories of one stack that differ by chaos; `shift` from update 11 on.
Trajectory replicate(std::uint64_t seed, double shift = 0.0) {
  Trajectory t = synthetic({.updates = 30, .eval_every = 1});
  const Series early = run_of(seed), late = run_of(seed, shift);
  for (std::size_t i = 0; i < 30; ++i) {
    const double factor = (i < 10 ? early : late)[i] / 2.0;
    t.updates->loss[i] *= factor;
    t.updates->adapter_checksum[i] = seed;
    t.evals->nll_sum[i + 1] *= factor;
    t.evals->loss[i + 1] = t.evals->nll_sum[i + 1] / static_cast<double>(t.evals->n_tokens[i + 1]);
    t.updates->grad_norm[i] *= factor;
    for (int k = 0; k < 2; ++k) t.observed->tensor_grad_norm[2 * i + static_cast<std::size_t>(k)] *= factor;
    t.updates->clip[i] = std::fmin(1.0, 1.0 / (t.updates->grad_norm[i] + 1e-6));
  }
  for (std::size_t k = 0; k < 4; ++k) t.probe->nll[k] += 1e-8 * RandomStream(seed, "start").unit(k);
  t.execution_text.replace(0, 15, cat("batch.micro = ", 2 + seed % 7));
  t.execution_digest = sha256_hex(t.execution_text);
  return t;
}

std::vector<Trajectory> files(std::size_t replicates, double shift) {
  std::vector<Trajectory> all = {replicate(1), replicate(2, shift)};
  all[1].provenance["arithmetic"] = "other";
  for (std::uint64_t i = 0; i < replicates; ++i) all.push_back(replicate(10 + i));
  return all;
}

const Observation* named(const Comparison& c, const std::string& name) {
  for (const Observation& o : c.observations)
    if (o.name == name) return &o;
  return nullptr;
}

TEST(Replicates, JudgeTheLaterUpdates) {
  const Comparison clean = compare(files(7, 0.0), {}), shifted = compare(files(7, 100.0), {});
  const auto* passed = named(clean, "held-out loss among replicates");
  ASSERT_TRUE(passed);
  EXPECT_EQ(passed->outcome, Outcome::kPass) << passed->detail;
  EXPECT_NE(passed->detail.find("8 replicates, Student's t, false alarms at most 1 %"), std::string::npos)
      << passed->detail;
  EXPECT_NE(passed->detail.find("a shift is seen from"), std::string::npos) << passed->detail;
  const auto* failed = named(shifted, "held-out loss among replicates");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->outcome, Outcome::kCalibrated);
  EXPECT_EQ(shifted.conclusion, Comparison::Conclusion::kDisagree);
}

TEST(Replicates, ThatAreFewOrTheSameRunAreNone) {
  auto all = files(1, 0.0);
  all.push_back(all[0]);
  all.push_back(all[0]);
  const Comparison found = compare(all, {});
  const auto* o = named(found, "B among replicates of A's stack");
  ASSERT_TRUE(o);
  EXPECT_EQ(o->outcome, Outcome::kNotChecked);
  EXPECT_NE(o->detail.find("2 different replicates"), std::string::npos) << o->detail;
}

TEST(Replicates, OfAnotherStackOrSpecAreRefused) {
  const auto refusal = [](auto&& change) {
    auto all = files(2, 0.0);
    change(all.back());
    try {
      compare(all, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(refusal([](Trajectory& t) { t.stack = "mirror"; }).find("stack mirror"), std::string::npos);
  EXPECT_NE(refusal([](Trajectory& t) { t.spec_text += "x = 1\n"; }).find("another spec"), std::string::npos);
  EXPECT_NE(refusal([](Trajectory& t) { t.updates->loss[4] = NAN; }).find("of update 5 is not a number"),
            std::string::npos);
  EXPECT_NE(
      refusal([](Trajectory& t) { t.evals->loss[4] = INFINITY; }).find("after update 4 is not a number"),
      std::string::npos);
  EXPECT_NE(refusal([](Trajectory& t) { t.provenance["arithmetic"] = "other"; }).find("other arithmetic"),
            std::string::npos);
  EXPECT_NE(refusal([](Trajectory& t) { t.updates->step.pop_back(); }).find("other updates"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
