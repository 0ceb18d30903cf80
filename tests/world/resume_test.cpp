// A resumed run is the same run: from every checkpoint of a run with the mirror beside it, on 1, 2 or 3
// ranks, `tandem train --resume` leaves the bits of the unbroken one in every file.
#include <gtest/gtest.h>

#include "io/checkpoint.hpp"
#include "io/trajectory_reader.hpp"
#include "tests/world/runs.hpp"

namespace tandem::world_test {
namespace {

class Resume : public Runs {};

constexpr const char* kMirrored =
    " --mirror.mode both --mirror.every 2 --snapshot.every 3 --checkpoint.every 1 --checkpoint.keep 100";

// R38, R39, R51: within an epoch and at its edge, within the warm-up and after it; rows of the trajectory
// once each.
TEST_F(Resume, FromEveryCheckpointOnOtherRanksLeavesTheBitsOfTheUnbrokenRun) {
  const fs::path whole = folder_ / "whole";
  const Ended first = train(2, whole, kMirrored);
  ASSERT_EQ(first.code, 0) << first.text;
  ASSERT_TRUE(read_trajectory(whole / "mirror.h5").complete);
  ASSERT_EQ(read_trajectory(whole / "native.h5").audits->step.size(), 5u);
  ASSERT_EQ(list_checkpoints(whole / "checkpoints").size(), static_cast<std::size_t>(kUpdates - 1));
  for (std::int64_t update = 1; update < kUpdates; ++update) {
    const fs::path again = folder_ / "again";
    fs::copy(whole, again, fs::copy_options::recursive);
    const int ranks = 1 + static_cast<int>(update % 3);
    // As a shell completes a folder's name, too.
    const Ended resumed = train(
        ranks, again,
        cat(kMirrored, " --resume ", (again / "checkpoints" / cat(update)).string(), update % 2 ? "/" : ""));
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find(cat("resumed from ", (again / "checkpoints" / cat(update)).string(),
                                    ": update ", update, " of 10")),
              std::string::npos)
        << resumed.text;
    EXPECT_EQ(differences(whole, again), std::vector<std::string>()) << "from update " << update;
    fs::remove_all(again);
  }
}

TEST_F(Resume, AFinishedRunIsLeftAsItIs) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(train(1, out, "").code, 0);
  const auto content = [&] {
    std::string all;
    for (const char* name : {"native.h5", "run.log", "adapter/adapter_model.safetensors"})
      all += support::read_text(out / name);
    return all;
  };
  const std::string before = content();
  const Ended again = train(2, out, "--resume auto");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("the run is finished (10 updates): nothing is left to do"), std::string::npos)
      << again.text;
  EXPECT_TRUE(content() == before);
}

TEST_F(Resume, AnotherSpecOrTrajectoryIsRefusedByNamingWhatDiffers) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(train(1, out, "--checkpoint.every 4").code, 0);
  fs::remove(out / "native.h5");  // not finished then, and not needed
  write_rows(folder_ / "train.jsonl", kSamples, 3);
  const Ended data = train(1, out, "--resume auto");
  EXPECT_EQ(data.code, 3);
  EXPECT_NE(data.text.find("is of another run: data.train = "), std::string::npos) << data.text;
  write_rows(folder_ / "train.jsonl", kSamples, 1);
  const Ended rate = train(2, out, "--resume auto --optim.lr_min 0.003 --seed.adapter 4");
  EXPECT_EQ(rate.code, 3);
  EXPECT_NE(rate.text.find("optim.lr_min = 0.0 there, 0.003 here; seed.adapter = 0 there, 4 here"),
            std::string::npos)
      << rate.text;
  const Ended longer = train(1, out, "--resume auto --train.updates 20 --eval.every 3");
  EXPECT_EQ(longer.code, 3);
  EXPECT_NE(longer.text.find("train.updates = 10 there, 20 here"), std::string::npos) << longer.text;
  const Ended micro = train(1, out, "--resume auto --snapshot.every 0 --snapshot.every 1");
  EXPECT_EQ(micro.code, 2) << "given twice";
  const Ended observed = train(1, out, "--resume auto --snapshot.every 5");
  EXPECT_EQ(observed.code, 3);
  EXPECT_NE(observed.text.find("snapshot.every = 0 there, 5 here"), std::string::npos) << observed.text;
  const Ended same = train(3, out, "--resume auto");
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_NE(same.text.find("update 8 of 10"), std::string::npos) << same.text;
}

TEST_F(Resume, ADamagedNewestCheckpointIsPassedOver) {
  const fs::path whole = folder_ / "whole", out = folder_ / "run";
  ASSERT_EQ(train(1, whole, "").code, 0);
  ASSERT_EQ(train(1, out, "--checkpoint.every 3 --checkpoint.keep 3").code, 0);
  fs::remove(out / "native.h5");
  support::write_text(out / "native.h5", "no HDF5");
  const fs::path damaged = out / "checkpoints" / "9" / "moments.safetensors";
  std::string bytes = support::read_text(damaged);
  bytes[bytes.size() / 2] ^= 1;
  support::write_text(damaged, bytes);
  fs::remove(out / "checkpoints" / "6" / "checkpoint.json");
  const Ended resumed = train(2, out, "--resume auto");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  for (const char* said : {"passed over: ", "moments.safetensors: is damaged", "6: is not complete",
                           "checkpoints/3: update 3 of 10"})
    EXPECT_NE(resumed.text.find(said), std::string::npos) << said << "\n" << resumed.text;
  EXPECT_EQ(differences(whole, out), std::vector<std::string>());
}

class Signal : public Resume {
 protected:
  // Starts a run, waits for `line` in its output, and sends the signal to the chosen ranks.
  Ended signalled(int ranks, const fs::path& out, const std::string& options, const std::string& line,
                  const std::string& signal, const std::string& which) const {
    const fs::path log = folder_ / "signalled.log", script = folder_ / "rank.sh";
    support::write_text(script, cat("echo $$ > ", (folder_ / "pid").string(), "$OMPI_COMM_WORLD_RANK; exec ",
                                    TANDEM_PROGRAM, " \"$@\"\n"));
    std::string words = command(ranks, out, options);
    const std::string program = cat(" ", TANDEM_PROGRAM, " ");
    words.replace(words.find(program), program.size(), cat(" bash ", script.string(), " "));
    const std::string all =
        cat(words, " > ", log.string(), " 2>&1 & job=$!; for i in $(seq 3000); do grep -q '", line, "' ",
            log.string(), " && break; kill -0 $job || break; sleep 0.01; done; kill -", signal, " $(cat ",
            (folder_ / "pid").string(), which, "); wait $job");
    support::write_text(folder_ / "job.sh", all);
    const int status = std::system(cat("bash ", (folder_ / "job.sh").string()).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), support::read_text(log)};
  }
};

TEST_F(Signal, OfAnyRankSavesAndAllExitWith6AndTheRunGoesOn) {
  const fs::path whole = folder_ / "whole";
  const std::string options =
      "--train.updates 240 --eval.every 80 --mirror.mode both --mirror.every 60 --output.flush_s 0.1";
  ASSERT_EQ(train(2, whole, options).code, 0);
  int n = 0;
  for (const auto& [signal, which, line] : {std::tuple{"USR1", "*", "evaluation after update 80"},
                                            {"TERM", "1", "evaluation after update 0"},
                                            {"INT", "0", "update 120"}}) {
    const fs::path out = folder_ / cat("run", n++);
    const Ended stopped = signalled(3, out, options, line, signal, which);
    EXPECT_EQ(stopped.code, 6) << signal << " " << which << "\n" << stopped.text;
    EXPECT_NE(stopped.text.find("stopped by a signal after update "), std::string::npos) << stopped.text;
    EXPECT_NE(stopped.text.find("go on with: tandem-mpirun -n 3 tandem train --model"), std::string::npos)
        << stopped.text;
    const Ended resumed = train(2, out, options + " --resume auto");
    EXPECT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_EQ(differences(whole, out), std::vector<std::string>()) << signal << " " << which << "\n"
                                                                   << resumed.text;
  }
}

// As a terminal does: to every process of the foreground job.
TEST_F(Signal, CtrlCUnderTandemMpirunSavesAndExitsWith6) {
  const fs::path out = folder_ / "run", log = folder_ / "interrupted.log";
  const std::string options = "--train.updates 2000 --eval.every 1000";
  std::string words = command(2, out, options);
  const fs::path launcher = fs::path(TANDEM_MPIRUN).parent_path() / "../../launch/tandem-mpirun";
  words.replace(0, words.find(cat(" 2 ", TANDEM_PROGRAM)), cat(launcher.string(), " -n"));
  support::write_text(
      folder_ / "job.sh",
      cat("set -m\n", words, " > ", log.string(), " 2>&1 & job=$!\n",
          "for i in $(seq 3000); do grep -q 'update 1/' ", log.string(),
          " && break; kill -0 $job || break; sleep 0.01; done\nkill -INT -$job; wait $job\n"));
  const int status = std::system(cat("bash ", (folder_ / "job.sh").string()).c_str());
  const std::string text = support::read_text(log);
  ASSERT_TRUE(WIFEXITED(status)) << text;
  EXPECT_EQ(WEXITSTATUS(status), 6) << text;
  EXPECT_NE(text.find("saved in "), std::string::npos) << text;
  EXPECT_FALSE(fs::is_empty(out / "checkpoints"));
}

TEST_F(Signal, OfAKillBeforeACheckpointLeavesWhatBeginsAnewAndTheLogIsKept) {
  const fs::path out = folder_ / "run", whole = folder_ / "whole";
  const std::string options = "--train.updates 300 --eval.every 100 --output.flush_s 0.01";
  const Ended fresh = train(1, whole, options + " --resume auto");
  EXPECT_EQ(fresh.code, 0) << fresh.text;
  EXPECT_NE(fresh.text.find("no checkpoint in"), std::string::npos) << fresh.text;
  ASSERT_NE(signalled(1, out, options, "evaluation after update 100", "KILL", "0").code, 0);
  const std::string log = support::read_text(out / "run.log");
  const Ended other = train(1, out, "--resume auto");
  EXPECT_EQ(other.code, 3) << other.text;
  EXPECT_NE(other.text.find("train.updates = 300 there, 10 here"), std::string::npos) << other.text;
  EXPECT_EQ(support::read_text(out / "run.log"), log);
  const Ended again = train(2, out, options + " --resume auto");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("made there were not saved and are made again"), std::string::npos) << again.text;
  EXPECT_TRUE(support::read_text(out / "run.log").starts_with(log));
  EXPECT_EQ(differences(whole, out), std::vector<std::string>());
}

TEST_F(Signal, WhileInputsAreReadEndsTheRunWithNothingSaved) {
  const fs::path out = folder_ / "run";
  const Ended stopped = signalled(2, out, "--train.updates 600 --eval.every 100", "rank 0 on", "USR1", "*");
  EXPECT_EQ(stopped.code, 6) << stopped.text;
  EXPECT_NE(stopped.text.find("stopped by a signal "), std::string::npos) << stopped.text;
  EXPECT_EQ(train(1, out, "--train.updates 10 --eval.every 3 --resume auto").code,
            fs::exists(out / "checkpoints") ? 3 : 0);
}

}  // namespace
}  // namespace tandem::world_test
