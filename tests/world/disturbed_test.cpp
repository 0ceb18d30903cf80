// Runs of `tandem train` whose disk, folder or locks fail them: one line says so, all ranks end, what was
// saved before is intact and can be continued.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "io/adapter.hpp"
#include "io/checkpoint.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "tests/support/edit_tensors.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/shell.hpp"
#include "tests/world/runs.hpp"

namespace tandem::world_test {
namespace {

constexpr double kSoon_s = 30.0;

// A file system in memory, as long as the object lives.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& at) : at_(at) {
    fs::create_directory(at);
    mounted_ = mount("tmpfs", at.c_str(), "tmpfs", 0, "size=64m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void remount(unsigned long flags, const std::string& options) const {
    ASSERT_EQ(mount("tmpfs", at_.c_str(), "tmpfs", MS_REMOUNT | flags, options.c_str()), 0)
        << std::strerror(errno);
  }
  // Nothing can be written that is larger than this, in KiB.
  void leave(std::uintmax_t kib) const {
    const fs::space_info space = fs::space(at_);
    remount(0, cat("size=", (space.capacity - space.available) / 1024 + kib, "k"));
  }

 private:
  fs::path at_;
  bool mounted_ = false;
};

#define SKIP_UNLESS_MOUNTED(disk) \
  if (!(disk).mounted())          \
  GTEST_SKIP() << "a small file system cannot be mounted here (needs root): " << std::strerror(errno)

class Disturbed : public Runs {
 protected:
  // Lines that are an error's.
  static std::vector<std::string> errors(const std::string& text) {
    std::vector<std::string> found;
    for (const std::string& line : support::lines_of(text))
      if (line.starts_with("tandem: ") || line.starts_with("[rank ")) found.push_back(line);
    return found;
  }

  static void expect_one_error(const Ended& ended, int code, const std::string& said) {
    EXPECT_EQ(ended.code, code) << ended.text;
    const std::vector<std::string> lines = errors(ended.text);
    ASSERT_EQ(lines.size(), 1u) << ended.text;
    EXPECT_SAYS(lines[0], said);
  }

  // A run that begins, `then` while it goes on, and how it ends: a script in which $job is the run's process,
  // `log` what it prints, and `await TEXT` waits for that.
  Ended meanwhile(int ranks, const fs::path& out, const std::string& options, const std::string& then,
                  const std::string& before = "") const {
    const fs::path log = folder_ / "log";
    support::write_text(folder_ / "job.sh",
                        cat("cd '", folder_.path().string(), "'\n", before, command(ranks, out, options),
                            " >log 2>&1 & job=$!\n",
                            "await() { for i in $(seq 6000); do grep -q -- \"$1\" log && return; kill -0 "
                            "$job 2>/dev/null || return; sleep 0.01; done; }\n",
                            then, "\nwait $job\n"));
    const auto start = std::chrono::steady_clock::now();
    const int status = std::system(cat("bash '", (folder_ / "job.sh").string(), "' >said 2>&1").c_str());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    EXPECT_LT(elapsed.count(), 2 * kSoon_s);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), support::read_text(log)};
  }

  static void expect_sound_checkpoints(const fs::path& run) {
    const std::vector<fs::path> all = list_checkpoints(run / "checkpoints");
    EXPECT_FALSE(all.empty());
    for (const fs::path& path : all) EXPECT_NO_THROW((void)read_checkpoint(path)) << path;
  }
};

// Condition: what, where and how much is missing; older checkpoints are intact, and resumed from once there
// is room.
TEST_F(Disturbed, AFullDiskEndsAllRanksAndTheOlderCheckpointIsGoneOnFromOnceThereIsRoom) {
  const SmallDisk disk(folder_ / "disk");
  SKIP_UNLESS_MOUNTED(disk);
  const fs::path whole = folder_ / "whole", out = folder_ / "disk" / "run";
  const std::string options =
      "--mirror.mode both --mirror.every 2 --checkpoint.every 3 --checkpoint.keep 9 --snapshot.every 4 ";
  ASSERT_EQ(train(2, whole, options).code, 0);
  // Where the room ends: at the trajectory, the next checkpoint, in the midst of it.
  for (const std::uintmax_t kib : {0, 150, 400, 700}) {
    fs::remove_all(out);
    disk.remount(0, "size=64m");
    ASSERT_EQ(train(2, out, options).code, 0);
    for (const fs::path& path : list_checkpoints(out / "checkpoints"))
      if (path.filename() != "3") fs::remove_all(path);
    fs::remove(out / "native.h5");
    disk.leave(kib);
    const auto start = std::chrono::steady_clock::now();
    const Ended full = train(2, out, options + "--resume auto");
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), kSoon_s);
    if (full.code == 0) continue;  // there was room
    expect_one_error(full, 3, out.string());
    const std::string line = errors(full.text)[0];
    EXPECT_TRUE(line.find("missing") != line.npos || line.find("did not fit") != line.npos ||
                line.find("No space left") != line.npos || line.find("the file system has") != line.npos)
        << line;
    expect_sound_checkpoints(out);
    disk.remount(0, "size=64m");
    const Ended resumed = train(3, out, options + "--resume auto");
    EXPECT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_EQ(differences(whole, out), std::vector<std::string>()) << kib << " KiB";
  }
}

TEST_F(Disturbed, ACheckpointThatHasNoRoomSaysHowMuchIsMissingBeforeItIsBegun) {
  const SmallDisk disk(folder_ / "disk");
  SKIP_UNLESS_MOUNTED(disk);
  const fs::path whole = folder_ / "whole", out = folder_ / "disk" / "run";
  // A large adapter beside a small trajectory.
  const auto large = [&](int ranks, const fs::path& run, const std::string& more) {
    std::string words = command(
        ranks, run, "--train.updates 10 --eval.every 10 --checkpoint.every 3 --checkpoint.keep 9 " + more);
    words.replace(words.find("--lora.rank 4"), 13, "--lora.rank 64");
    const int status = std::system(cat(words, " > ", (folder_ / "log").string(), " 2>&1").c_str());
    return Ended{WEXITSTATUS(status), support::read_text(folder_ / "log")};
  };
  ASSERT_EQ(large(2, whole, "").code, 0);
  ASSERT_EQ(large(2, out, "").code, 0);
  for (const char* later : {"6", "9"}) fs::remove_all(out / "checkpoints" / later);
  const std::uintmax_t trajectory = fs::file_size(out / "native.h5");
  fs::remove(out / "native.h5");
  disk.leave(2 * trajectory / 1024 + 100);
  const Ended full = large(2, out, "--resume auto");
  expect_one_error(full, 3, cat(out.string(), ": no room for a checkpoint: "));
  EXPECT_SAYS(full.text, " MiB missing; make room and go on with --resume auto");
  expect_sound_checkpoints(out);
  disk.remount(0, "size=64m");
  const Ended resumed = large(1, out, "--resume auto");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(differences(whole, out), std::vector<std::string>());
}

TEST_F(Disturbed, AFolderThatCannotBeWrittenIsRefusedInOneLine) {
  const SmallDisk disk(folder_ / "disk");
  SKIP_UNLESS_MOUNTED(disk);
  const fs::path out = folder_ / "disk" / "run";
  ASSERT_EQ(train(1, out, "--checkpoint.every 4").code, 0);
  fs::remove(out / "native.h5");  // not finished then
  disk.remount(MS_RDONLY, "size=64m");
  expect_one_error(train(2, out, "--resume auto"), 3,
                   cat("run.out: ", out.string(), ": cannot be written: "));
  expect_one_error(train(2, folder_ / "disk" / "new", ""), 3, "Read-only file system");
  // R40: a file in place of the folder.
  support::write_text(folder_ / "file", "mine");
  expect_one_error(train(2, folder_ / "file", "--overwrite --resume auto"), 3, "is a file, not a folder");
  EXPECT_EQ(support::read_text(folder_ / "file"), "mine");
}

TEST_F(Disturbed, AFolderThatVanishesEndsAllRanksAndIsNotMadeAnew) {
  const fs::path out = folder_ / "run", moved = folder_ / "moved";
  const std::string endless =
      "--train.updates 1000000 --eval.every 1000000 --checkpoint.every 20 --output.flush_s 0.1 ";
  const Ended gone = meanwhile(
      2, out, endless, cat("await 'checkpoint after update 40'; mv ", out.string(), " ", moved.string()));
  expect_one_error(gone, 3, out.string());
  EXPECT_FALSE(fs::exists(out));
  expect_sound_checkpoints(moved);
  const Ended removed =
      meanwhile(2, out, endless,
                cat("await 'checkpoint after update 40'; while ! rm -rf ", out.string(), "; do :; done"));
  expect_one_error(removed, 3, out.string());
  EXPECT_FALSE(fs::exists(out));
}

// R44, R45, R47: whatever locks there are, and with readers all the time.
TEST_F(Disturbed, LocksOfFilesAndReadersChangeNothing) {
  const fs::path whole = folder_ / "whole";
  const std::string options =
      "--train.updates 100 --eval.every 50 --checkpoint.every 50 --mirror.mode both --mirror.every 40 "
      "--output.flush_s 0.02 ";
  ASSERT_EQ(train(2, whole, options).code, 0);
  const std::string read =
      cat("while kill -0 $job 2>/dev/null; do for f in run*/native.h5 run*/mirror.h5; do [ -e $f ] || "
          "continue;\n",
          "h5dump -H $f >dump 2>&1 || { echo h5dump $f; cat dump; }; ", TANDEM_PROGRAM,
          " inspect $f >dump 2>&1 || { echo inspect $f; cat dump; };\n",
          "exec 9<$f; done; sleep 0.2; done >failed 2>&1");
  int n = 0;
  for (const std::string& locking :
       {std::string("HDF5_USE_FILE_LOCKING=TRUE"), std::string("HDF5_USE_FILE_LOCKING=FALSE"),
        cat("LD_PRELOAD=", TANDEM_NO_FLOCK),
        cat("HDF5_USE_FILE_LOCKING=TRUE LD_PRELOAD=", TANDEM_NO_FLOCK)}) {
    const fs::path out = folder_ / cat("run", n++);
    const Ended ended = meanwhile(2, out, options, read, locking + " ");
    EXPECT_EQ(ended.code, 0) << locking << "\n" << ended.text;
    EXPECT_EQ(support::read_text(folder_ / "failed"), "") << locking;
    EXPECT_EQ(differences(whole, out), std::vector<std::string>()) << locking;
    fs::remove(out / "native.h5");
    fs::remove(out / "mirror.h5");
    const Ended resumed = train(1, out, options + "--resume auto", locking + " ");
    EXPECT_EQ(resumed.code, 0) << locking << "\n" << resumed.text;
    EXPECT_EQ(differences(whole, out), std::vector<std::string>()) << locking;
    fs::remove_all(out);
  }
}

// R45, R46, R54.
TEST_F(Disturbed, ASecondJobOnTheFolderIsRefusedAlsoWithoutLocksAndFromAnotherHost) {
  const std::string endless = "--train.updates 1000000 --eval.every 1000000 --checkpoint.every 50 ";
  const bool other_host = std::system("unshare --uts true 2>/dev/null") == 0;
  for (const std::string& locks : {std::string(), cat("LD_PRELOAD=", TANDEM_NO_FLOCK, " ")}) {
    const fs::path out = folder_ / (locks.empty() ? "locked" : "unlocked");
    std::string script = "await 'checkpoint after update 100'\n";
    int n = 0;
    for (const char* how : {"", "--resume auto", "--overwrite"})
      script +=
          cat(locks, command(2, out, endless + how), " >second", n, " 2>&1; echo code $? >>second", n, "\n"),
          ++n;
    if (other_host)
      script +=
          cat("unshare --uts sh -c 'hostname elsewhere; ", locks, command(1, out, endless + "--resume auto"),
              "' >elsewhere 2>&1; echo code $? >>elsewhere\n");
    script += "grep '^pid = ' " + (out / "run.lock").string() +
              " >lock; : >log; await 'checkpoint after'; kill -KILL $(sed 's/pid = //' lock)";
    const Ended first = meanwhile(2, out, endless, script, locks);
    EXPECT_NE(first.code, 0);
    EXPECT_SAYS(first.text, "checkpoint after update ");
    EXPECT_EQ(errors(first.text), std::vector<std::string>()) << "the second jobs left it alone";
    for (int i = 0; i < n; ++i) {
      const std::string second = support::read_text(folder_ / cat("second", i));
      EXPECT_SAYS(second, "code 3");
      EXPECT_EQ(errors(second).size(), 1u) << second;
      EXPECT_SAYS(second, i == 0 ? "holds a run already" : "another run is going on there (process ");
    }
    if (other_host) {
      const std::string elsewhere = support::read_text(folder_ / "elsewhere");
      EXPECT_SAYS(elsewhere, "code 3");
      EXPECT_SAYS(elsewhere, "another run is going on there (process ");
      if (!locks.empty()) EXPECT_SAYS(elsewhere, "or delete this file if that process is gone");
    }
    expect_sound_checkpoints(out);
    // The first one was killed: its lock is taken over.
    ASSERT_TRUE(fs::exists(out / "run.lock"));
    const Ended third = meanwhile(
        1, out, endless + "--resume auto",
        "await 'resumed from'; kill -USR1 $(sed -n 's/^pid = //p' " + (out / "run.lock").string() + ")",
        locks);
    EXPECT_EQ(third.code, 6) << third.text;
    EXPECT_SAYS(third.text, "run.lock taken over from process ");
    EXPECT_FALSE(fs::exists(out / "run.lock"));
  }
}

// R40: what broken saves of anybody left.
TEST_F(Disturbed, HalfCheckpointsAndFilesInTheirPlaceAreReplaced) {
  const fs::path whole = folder_ / "whole", out = folder_ / "run";
  const std::string options = "--checkpoint.every 2 --checkpoint.keep 9 ";
  ASSERT_EQ(train(2, whole, options).code, 0);
  fs::copy(whole, out, fs::copy_options::recursive);
  fs::remove(out / "native.h5");
  const fs::path checkpoints = out / "checkpoints";
  fs::remove(checkpoints / "6" / "checkpoint.json");
  fs::remove(checkpoints / "6" / "moments.safetensors");
  fs::remove_all(checkpoints / "8");
  support::write_text(checkpoints / "8", "a file");
  fs::create_directories(checkpoints / "8.tandem-elsewhere-17.tmp" / "adapter");
  fs::create_directory(checkpoints / "2.tandem-elsewhere-17.old");
  support::write_text(out / "native.h5.tandem-elsewhere-17.tmp", "half");
  const Ended resumed = train(2, out, options + "--resume auto");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  for (const char* said :
       {"6: is not complete", "8: is no folder of a checkpoint", "checkpoints/4: update 4 of 10"})
    EXPECT_SAYS(resumed.text, said);
  EXPECT_EQ(differences(whole, out), std::vector<std::string>());
  expect_sound_checkpoints(out);
  EXPECT_EQ(list_checkpoints(checkpoints).size(), 4u);
  for (const auto& entry : fs::recursive_directory_iterator(out))
    EXPECT_EQ(entry.path().filename().string().find(".tandem-"), std::string::npos) << entry.path();
}

// R42: one sample, so one rank, whose gradient is not finite.
TEST_F(Disturbed, ANonFiniteGradientOfOneRankNeverReachesACheckpoint) {
  constexpr int kBad = 5;                                             // a token that only one sample has
  const fs::path model = support::make_tiny_model(folder_, "llama");  // its head is another table
  // Only that token has something in channel 0, which the first layer's norm makes large: attention scores
  // overflow.
  support::edit_tensors(model / "model.safetensors", [](auto& tensors) {
    support::EditedTensor& table = tensors.at("model.embed_tokens.weight");
    for (std::int64_t token = 0; token < table.shape[0]; ++token)
      table.values[static_cast<std::size_t>(token * table.shape[1])] = token == kBad ? 1.0f : 0.0f;
    tensors.at("model.layers.0.input_layernorm.weight").values[0] = 1e30f;
  });
  std::string rows;
  for (int i = 0; i < 30; ++i)
    rows += cat("{\"ids\":[1,2,", i == 17 ? kBad : 6, ",3,4],\"targets\":[0,0,1,1,1]}\n");
  support::write_text(folder_ / "train.jsonl", rows);
  const fs::path out = folder_ / "run";
  const std::string options =
      "--train.updates 20 --eval.every 20 --checkpoint.every 1 --checkpoint.keep 1 --batch.global 3 "
      "--batch.micro 1 ";
  std::string words = command(3, out, options);
  words.replace(words.find("--batch.global 6 --batch.micro 2"), 32, "");
  words.replace(words.find((folder_ / "held_out.jsonl").string()),
                (folder_ / "held_out.jsonl").string().size(), (folder_ / "good.jsonl").string());
  words.replace(words.find(model_.string()), model_.string().size(), model.string());
  support::write_text(folder_ / "good.jsonl", "{\"ids\":[1,2,3,4],\"targets\":[0,1,1,1]}\n");
  for (const char* more : {"", "--resume auto"}) {
    const int status = std::system(cat(words, more, " > ", (folder_ / "log").string(), " 2>&1").c_str());
    const std::string text = support::read_text(folder_ / "log");
    ASSERT_TRUE(WIFEXITED(status));
    expect_one_error({WEXITSTATUS(status), text}, 1, "update ");
    EXPECT_SAYS(text, "not finite");
    const std::vector<fs::path> all = list_checkpoints(out / "checkpoints");
    ASSERT_GE(all.size(), 1u) << text;
    EXPECT_LE(all.size(), 2u);
    expect_sound_checkpoints(out);
    for (const fs::path& path : all) {
      const SafetensorsFile adapter(path / "adapter" / "adapter_model.safetensors");
      for (const TensorRecord& record : adapter.tensors()) {
        std::vector<float> values(static_cast<std::size_t>(record.count()));
        widen_to_f32(record, values);
        for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << path << " " << record.name;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::world_test
