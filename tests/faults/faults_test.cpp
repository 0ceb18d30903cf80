// What the mirror sees of faults planted in native: by which observation, how grave, and how early.
#include "tests/faults/faults.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "tests/support/mirrored_runs.hpp"

namespace tandem::faults_test {
namespace {

namespace fs = std::filesystem;
using support::Bench;
using support::Command;

std::string row_of(const Fault& fault) {
  return cat("| ", fault.what, " | `", fault.name, "` | ", fault.level, " | ", fault.observation, " | ",
             fault.verdict, " | ", fault.first, " |");
}

class Faults : public testing::Test {
 protected:
  static Bench& bench() {
    static Bench bench;
    return bench;
  }
  static Command planted(const Fault& fault, const std::string& options) {
    return {fault.ranks, options, cat("TANDEM_FAULT=", fault.name, " ", fault.environment), TANDEM_FAULTY};
  }
};

TEST_F(Faults, AreSeenByTheObservationThatIsTheirsAndAtTheFirstUpdateThatHasThem) {
  std::printf("| fault | name | level | observation | verdict | first update |\n|---|---|---|---|---|---|\n");
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.what);
    const fs::path out =
        bench().train(planted(fault, "--batch.micro 2 --train.updates 3 --eval.every 3 --optim.warmup 0"));
    const Trajectory run = read_trajectory(out / "native.h5");
    ASSERT_TRUE(run.audits && run.audits->rows >= 3) << bench().log();
    const auto& verdicts = run.audits->verdict;
    const auto first =
        std::find_if(verdicts.begin(), verdicts.end(), [](Verdict v) { return v != Verdict::kPass; });
    ASSERT_NE(first, verdicts.end()) << "not seen: " << bench().log();
    const auto row = static_cast<std::size_t>(first - verdicts.begin());
    Fault seen = fault;
    seen.first = run.audits->step[row];
    seen.verdict = name_of(*first);
    EXPECT_EQ(row_of(seen), row_of(fault));
    EXPECT_NE(run.audits->note[row].find(fault.note), std::string::npos) << run.audits->note[row];
    std::printf("%s\n", row_of(seen).c_str());
  }
  std::fflush(stdout);
}

TEST_F(Faults, AnEvaluationWithoutTheAdapterIsSeenAtTheFirstEvaluationAfterAnUpdate) {
  const std::string options =
      "--batch.micro 2 --train.updates 2 --eval.every 1 --optim.warmup 0 --mirror.mode both ";
  const fs::path out = bench().train(planted(kEvaluation, options));
  EXPECT_NE(bench().log().find("evaluation after update 1: the held-out loss is, to the bit, that without"),
            std::string::npos)
      << bench().log();
  // The free run sees it as well: the same evaluation of the same adapter, in the mirror's own words.
  const Trajectory native = read_trajectory(out / "native.h5"), mirror = read_trajectory(out / "mirror.h5");
  ASSERT_TRUE(native.evals && mirror.evals && native.evals->rows == 3 && mirror.evals->rows == 3);
  EXPECT_EQ(native.evals->n_tokens, mirror.evals->n_tokens);
  const auto off = [&](std::size_t e) { return std::abs(native.evals->loss[e] / mirror.evals->loss[e] - 1); };
  EXPECT_LT(off(0), 1e-6) << "the same before the first update";
  EXPECT_GT(off(1), 1e-4) << native.evals->loss[1] << " and " << mirror.evals->loss[1];
  for (const Verdict verdict : native.audits->verdict) EXPECT_EQ(verdict, Verdict::kPass);
  std::printf("%s\n", row_of(kEvaluation).c_str());

  Command stopping = planted(kEvaluation, options + "--mirror.on_mismatch stop");
  stopping.code = static_cast<int>(ErrorKind::kDisagreement);
  bench().train(stopping);
}

TEST_F(Faults, StopTheRunWhereThatIsAskedFor) {
  for (const Fault& fault : faults()) {
    if (fault.name != "wrong_adam_eps" && fault.name != "wrong_alpha") continue;
    // What is calibrated ends a run at the second miss.
    Command run =
        planted(fault, "--batch.micro 2 --train.updates 40 --eval.every 40 --mirror.on_mismatch stop");
    run.code = static_cast<int>(ErrorKind::kDisagreement);
    const fs::path out = bench().train(run);
    const Trajectory native = read_trajectory(out / "native.h5");
    ASSERT_TRUE(native.updates && native.audits);
    EXPECT_LT(native.updates->rows, 40);
    EXPECT_GE(native.audits->rows, fault.verdict == "BOUND" ? 1 : 2);
    EXPECT_FALSE(native.complete);
    ASSERT_FALSE(native.snapshots.empty()) << "the state of the update that failed";
    EXPECT_EQ(native.snapshots[0].first, 1);
  }
}

TEST_F(Faults, WithoutOneTheProgramWithFaultsTrainsLikeTheOther) {
  const std::string options = "--batch.micro 2 --train.updates 3 --eval.every 3";
  const Trajectory ours = read_trajectory(bench().train({2, options}) / "native.h5");
  const Trajectory faulty = read_trajectory(bench().train({2, options, "", TANDEM_FAULTY}) / "native.h5");
  ASSERT_TRUE(ours.updates && faulty.updates);
  EXPECT_EQ(ours.updates->checksum, faulty.updates->checksum);
  EXPECT_EQ(ours.updates->adapter_checksum, faulty.updates->adapter_checksum);
  EXPECT_EQ(ours.audits->verdict, (std::vector<Verdict>(3, Verdict::kPass)));
}

TEST(FaultNames, AreInTheProgramWithFaultsAndNotInTheReleased) {
  const std::string released = support::read_text(TANDEM_PROGRAM), faulty = support::read_text(TANDEM_FAULTY);
  std::vector<std::string> names = {"TANDEM_FAULT", "TANDEM_FAULT_RANK", kEvaluation.name};
  for (const Fault& fault : faults()) names.push_back(fault.name);
  for (const std::string& name : names) {
    EXPECT_NE(faulty.find(name), std::string::npos) << name;
    EXPECT_EQ(released.find(name), std::string::npos) << name;
  }
}

TEST(FaultTable, OfTheReadmeIsTheOneThatIsTested) {
  const std::string readme = support::read_text(fs::path(TANDEM_SOURCE_DIR) / "tests/faults/README.md");
  for (const Fault& fault : faults())
    EXPECT_NE(readme.find(row_of(fault)), std::string::npos) << row_of(fault);
  EXPECT_NE(readme.find(row_of(kEvaluation)), std::string::npos) << row_of(kEvaluation);
}

}  // namespace
}  // namespace tandem::faults_test
