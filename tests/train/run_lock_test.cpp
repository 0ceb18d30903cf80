#include "src/train/run_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::string text_of(const LockText& text) {
  std::string all;
  for (const auto& [key, value] : text) all += cat(key, " = ", value, "\n");
  return all;
}

std::string refusal(const fs::path& file, bool flock) {
  try {
    const RunLock lock(file, flock);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

// The lock text of a process of this host that has ended; of one that nobody has waited for yet.
LockText of_a_dead_process(const fs::path& file, bool waited_for = true) {
  const pid_t child = fork();
  if (child == 0) {
    support::write_text(file, text_of(own_lock_text(false)));
    _exit(0);
  }
  siginfo_t ignored;
  waitid(P_PID, static_cast<id_t>(child), &ignored, WEXITED | (waited_for ? 0 : WNOWAIT));
  LockText text = own_lock_text(false);
  text["pid"] = cat(child);
  return text;
}

TEST(RunLock, IsThereAsLongAsItsProcessAndRefusesOthersByName) {
  const support::TempFolder temp;
  const fs::path file = temp / "run.lock";
  {
    const RunLock lock(file, false);
    EXPECT_EQ(lock.taken_over(), "");
    EXPECT_SAYS(refusal(file, false), cat("another run is going on there (process ", getpid(), " on "));
    EXPECT_SAYS(refusal(file, true), "end it first");
    EXPECT_SAYS(lock_holder(file), cat("process ", getpid(), " on "));
  }
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(lock_holder(file), "");
}

TEST(RunLock, OfADeadProcessOfThisHostIsTakenOverWithALineThatSaysSo) {
  const support::TempFolder temp;
  const fs::path file = temp / "run.lock";
  const LockText dead = of_a_dead_process(file);
  {
    const RunLock lock(file, false);
    EXPECT_SAYS(lock.taken_over(), cat("run.lock taken over from process ", dead.at("pid"), " on "));
    EXPECT_SAYS(support::read_text(file), cat("pid = ", getpid(), "\n"));
  }
  const LockText unwaited = of_a_dead_process(file, false);
  EXPECT_SAYS(RunLock(file, false).taken_over(), unwaited.at("pid"));
  waitpid(std::stoi(unwaited.at("pid")), nullptr, 0);
  // Its number has gone to another process since.
  LockText reused = own_lock_text(false);
  reused["start"] = "1";
  support::write_text(file, text_of(reused));
  EXPECT_SAYS(RunLock(file, false).taken_over(), "which is gone");
  // Or the host was started anew.
  LockText before = own_lock_text(false);
  before["boot"] = "another";
  support::write_text(file, text_of(before));
  EXPECT_SAYS(RunLock(file, false).taken_over(), "which is gone");
}

TEST(RunLock, OfAnotherHostOrUnreadableIsRefusedSayingWhatToDo) {
  const support::TempFolder temp;
  const fs::path file = temp / "run.lock";
  LockText other = own_lock_text(false);
  other["host"] = "elsewhere";
  other["boot"] = "another";
  support::write_text(file, text_of(other));
  for (const bool flock : {false, true}) {
    const std::string text = refusal(file, flock);
    EXPECT_SAYS(text, "on elsewhere, since ");
    EXPECT_SAYS(text, "or delete this file if that process is gone");
    EXPECT_SAYS(text, file.string());
  }
  EXPECT_EQ(support::read_text(file), text_of(other));
  support::write_text(file, "");
  EXPECT_SAYS(refusal(file, false), "a process that it does not name");
}

TEST(RunLock, OfAnotherHostIsTakenOverOnlyWhereItsProcessIsSurelyGone) {
  LockText own = own_lock_text(true), holder = own_lock_text(true);
  holder["host"] = "elsewhere";
  holder["boot"] = "another";
  EXPECT_TRUE(holder_is_gone(holder, own, true)) << "both had the lock of a file system of one machine";
  EXPECT_FALSE(holder_is_gone(holder, own, false));
  own["flock"] = "false";
  EXPECT_FALSE(holder_is_gone(holder, own, true));
  holder["job"] = "17 0";
  own["job"] = "17 1";
  EXPECT_TRUE(holder_is_gone(holder, own, false)) << "an earlier start of the same job";
  own["job"] = "17 0";
  EXPECT_FALSE(holder_is_gone(holder, own, false)) << "the same start of it";
  own["job"] = "171 0";
  EXPECT_FALSE(holder_is_gone(holder, own, false));
  holder["job"] = own["job"] = "none";
  EXPECT_FALSE(holder_is_gone(holder, own, false));
  // Another number space of processes on this host: containers of one name.
  LockText contained = own_lock_text(false);
  contained["pid_namespace"] = "pid:[1]";
  EXPECT_FALSE(holder_is_gone(contained, own_lock_text(false), false));
}

TEST(RunLock, OfManyWhoFindADeadOneOneGetsIt) {
  const support::TempFolder temp;
  const fs::path file = temp / "run.lock";
  for (int round = 0; round < 20; ++round) {
    (void)of_a_dead_process(file);
    constexpr int kJobs = 6;
    int go[2], held[2];
    ASSERT_EQ(pipe(go) + pipe(held), 0);
    std::vector<pid_t> jobs;
    for (int i = 0; i < kJobs; ++i) {
      jobs.push_back(fork());
      if (jobs.back() != 0) continue;
      char c = 0;
      close(go[1]);
      (void)!read(go[0], &c, 1);  // the end of the pipe: all begin together
      int code = 1;
      try {
        const RunLock lock(file, false);
        code = 0;
        sleep(10);  // ended by the test
      } catch (const Error&) {
        (void)!write(held[1], "x", 1);
      }
      _exit(code);
    }
    close(go[0]);
    close(go[1]);
    char refused[kJobs];
    for (int n = 0; n < kJobs - 1;) {
      const ssize_t got = read(held[0], refused, sizeof(refused));
      ASSERT_GT(got, 0);
      n += static_cast<int>(got);
    }
    int holders = 0;
    for (const pid_t job : jobs) {
      int status = 0;
      if (waitpid(job, &status, WNOHANG) == job) continue;
      if (support::read_text(file).find(cat("pid = ", job, "\n")) != std::string::npos) ++holders;
    }
    EXPECT_EQ(holders, 1);
    for (const pid_t job : jobs) kill(job, SIGKILL), waitpid(job, nullptr, 0);
    close(held[0]);
    close(held[1]);
  }
}

}  // namespace
}  // namespace tandem
