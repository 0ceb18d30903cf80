// `tandem audit`: replays a stored update.
#include "src/cli/audit_command.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/error.hpp"
#include "tests/support/mirrored_runs.hpp"

namespace tandem::audit_test {
namespace {

namespace fs = std::filesystem;

class AuditCommand : public testing::Test {
 protected:
  // One run for all tests; each may spoil its own copy.
  static const fs::path& trained() {
    static support::Bench bench;
    static const fs::path run = bench.train(
        {.options = "--batch.micro 2 --train.updates 6 --eval.every 6 --snapshot.every 2", .every = 0});
    return run;
  }
  void SetUp() override { fs::copy(trained(), run_, fs::copy_options::recursive); }
  fs::path snapshot(int step) const { return run_ / "native.snapshots" / cat(step, ".h5"); }
  std::string error_of(const fs::path& file) const {
    std::ostringstream out;
    try {
      audit_command({.snapshot = file}, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    ADD_FAILURE() << file << ": " << out.str();
    return "";
  }

  support::TempFolder folder_;
  fs::path run_ = folder_ / "run";
};

TEST_F(AuditCommand, PassesWhatTheRunComputed) {
  for (const int step : {2, 4, 6}) {
    std::ostringstream out;
    EXPECT_EQ(audit_command({.snapshot = snapshot(step)}, out), 0);
    EXPECT_TRUE(out.str().starts_with(cat("update ", step, ": PASS\n"))) << out.str();
  }
  std::ostringstream out;
  EXPECT_EQ(audit_command({.snapshot = snapshot(4), .json = true}, out), 0);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json.at("step"), 4);
  EXPECT_EQ(json.at("verdict"), "PASS");
  EXPECT_EQ(json.at("tensors").size(), 28u);
}

TEST_F(AuditCommand, EndsWithFiveWhereTheStateIsAnotherUpdates) {
  fs::remove(snapshot(2));
  fs::copy(snapshot(4), snapshot(2));
  std::ostringstream out;
  EXPECT_EQ(audit_command({.snapshot = snapshot(2)}, out), static_cast<int>(ErrorKind::kDisagreement));
  EXPECT_NE(out.str().find("by the mirror"), std::string::npos) << out.str();
  const std::string line =
      cat(TANDEM_PROGRAM, " audit ", snapshot(2).string(), " > ", (folder_ / "out").string(), " 2>&1");
  const int status = std::system(line.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 5) << support::read_text(folder_ / "out");
}

TEST_F(AuditCommand, TakesInputsThatHaveMoved) {
  const Trajectory run = read_trajectory(run_ / "native.h5");
  fs::copy(run.provenance.at("path.model.path"), folder_ / "model");
  fs::copy(run.provenance.at("path.data.train"), folder_ / "rows");
  std::ostringstream out;
  EXPECT_EQ(audit_command({.snapshot = snapshot(2),
                           .model = (folder_ / "model").string(),
                           .train = (folder_ / "rows").string()},
                          out),
            0);
  // Others under their name are not those of the run.
  std::ofstream(folder_ / "rows", std::ios::app) << "\n";
  try {
    audit_command({.snapshot = snapshot(2), .train = (folder_ / "rows").string()}, out);
    FAIL() << "other data passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find("data.train"), std::string::npos) << error.what();
  }
}

TEST_F(AuditCommand, SaysWhatIsWrongWithAFile) {
  EXPECT_NE(error_of(run_ / "native.h5").find("a snapshot lies in a run's folder"), std::string::npos);
  EXPECT_NE(error_of(folder_ / "4.h5").find("a snapshot lies in a run's folder"), std::string::npos);
  EXPECT_NE(error_of(run_ / "native.snapshots" / "last.h5").find("its update"), std::string::npos);
  EXPECT_NE(error_of(snapshot(3)).find("3.h5"), std::string::npos) << "no such snapshot";
  EXPECT_NE(error_of(snapshot(60)).find("holds no update 60"), std::string::npos);
  support::write_text(snapshot(2), "not HDF5 at all");
  EXPECT_NE(error_of(snapshot(2)).find("2.h5"), std::string::npos);
  fs::remove(snapshot(2));
  fs::copy(run_ / "native.h5", snapshot(2));
  EXPECT_NE(error_of(snapshot(2)).find("2.h5"), std::string::npos) << "a trajectory is no snapshot";
  fs::remove(run_ / "native.h5");
  EXPECT_NE(error_of(snapshot(4)).find("native.h5"), std::string::npos);
}

TEST_F(AuditCommand, NamesThePartThatASnapshotLacks) {
  support::Bench bench;
  const fs::path run = bench.train(
      {.options =
           "--batch.micro 2 --train.updates 2 --eval.every 2 --snapshot.every 2 --snapshot.what adapter,m",
       .every = 0});
  const std::string error = error_of(run / "native.snapshots" / "2.h5");
  EXPECT_NE(error.find("v"), std::string::npos) << error;
  EXPECT_NE(error.find("2.h5"), std::string::npos) << error;
}

}  // namespace
}  // namespace tandem::audit_test
