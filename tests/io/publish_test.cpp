#include "io/publish.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "src/base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::read_text;
using support::TempFolder;
using support::write_text;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Publish, ReplacesAFileAndLeavesNothingElse) {
  TempFolder folder;
  publish_file(folder / "a", std::string_view("one"));
  publish_file(folder / "a", std::string_view("two"));
  EXPECT_EQ(read_text(folder / "a"), "two");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(Publish, ReplacesWhatAKilledWriterLeft) {
  TempFolder folder;
  write_text(folder / "a.tmp", "half a fi");
  publish_file(folder / "a", std::string_view("whole"));
  EXPECT_EQ(read_text(folder / "a"), "whole");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(Publish, AnAbandonedFileLeavesTheOldOne) {
  TempFolder folder;
  publish_file(folder / "a", std::string_view("old"));
  {
    FilePublisher file(folder / "a");
    file.write("new");
  }
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(Publish, TheErrorNamesPathAndReason) {
  TempFolder folder;
  const auto text = error_of([&] { publish_file(folder / "none/a", std::string_view("x")); });
  EXPECT_NE(text.find("none/a"), text.npos) << text;
  EXPECT_NE(text.find("No such file or directory"), text.npos) << text;
  fs::create_directory(folder / "d");
  write_text(folder / "d/x", "");
  const auto renamed = error_of([&] { publish_file(folder / "d", std::string_view("x")); });
  EXPECT_NE(renamed.find("rename"), renamed.npos) << renamed;
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"d"});
}

TEST(Publish, ReplacesAFolder) {
  TempFolder folder;
  for (const std::string round : {"1", "2", "3"}) {
    FolderPublisher adapter(folder / "adapter/");
    write_text(adapter.staging() / ("file" + round), round);
    fs::create_directory(adapter.staging() / "sub");
    write_text(adapter.staging() / "sub/deep", round);
    adapter.publish();
    EXPECT_EQ(names_in(folder / "adapter"), (std::vector<std::string>{"file" + round, "sub"}));
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"adapter"});
  }
  {
    FolderPublisher abandoned(folder / "adapter");
    write_text(abandoned.staging() / "x", "");
  }
  EXPECT_EQ(read_text(folder / "adapter/file3"), "3");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"adapter"});
}

TEST(Publish, AFolderReplacesLeftoversButNotAFile) {
  TempFolder folder;
  fs::create_directories(folder / "adapter.tmp/half");
  {
    FolderPublisher adapter(folder / "adapter");
    adapter.publish();
  }
  EXPECT_TRUE(names_in(folder / "adapter").empty());
  write_text(folder / "file", "x");
  const auto text = error_of([&] { FolderPublisher over(folder / "file"); });
  EXPECT_NE(text.find("File exists"), text.npos) << text;
}

TEST(Publish, AFullDiskLeavesTheOldFileAndNoTemporary) {
  TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "a small file system cannot be mounted here (needs root): " << std::strerror(errno);
  const std::string old(300'000, 'o'), big(900'000, 'n');
  publish_file(folder / "a", old);
  const auto text = error_of([&] { publish_file(folder / "a", big); });
  EXPECT_NE(text.find("write: No space left on device"), text.npos) << text;
  EXPECT_EQ(read_text(folder / "a"), old);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  umount(folder.path().c_str());
}

// A child publishes two-part files and folders for ever; whatever the instant it is killed at, both are
// whole.
TEST(Publish, AKilledWriterNeverLeavesAHalf) {
  TempFolder folder;
  std::mt19937 random(20);
  std::uniform_int_distribution<int> delay_us(200, 15'000);
  for (int kill_at = 0; kill_at < 40; ++kill_at) {
    fs::remove_all(folder / "both");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int round = 0;; ++round) {
        const std::string text(100'000, static_cast<char>('a' + round % 26));
        FilePublisher file(folder / "file");
        file.write(text.substr(0, 50'000));
        file.write(text.substr(50'000));
        file.publish();
        FolderPublisher both(folder / "both");
        publish_file(both.staging() / "one", text);
        publish_file(both.staging() / "two", text);
        both.publish();
      }
    }
    const bool started = support::wait_for(folder / "both");
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(random)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(started);
    for (const auto* name : {"file", "both/one"}) {
      const auto text = read_text(folder / name);
      ASSERT_EQ(text, std::string(100'000, text.at(0))) << name;
    }
    ASSERT_EQ(read_text(folder / "both/one"), read_text(folder / "both/two"));
  }
}

}  // namespace
}  // namespace tandem
