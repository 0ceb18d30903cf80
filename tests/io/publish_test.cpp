#include "io/publish.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
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

// The number of a process that has ended.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

std::string temporary_of(const std::string& name, pid_t pid) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return name + ".tandem-" + host + "-" + std::to_string(pid) + ".tmp";
}

TEST(Publish, RemovesWhatAKilledWriterLeftAndNothingElse) {
  TempFolder folder;
  const std::string living = temporary_of("a", getppid()), others = temporary_of("ab", ended_process());
  write_text(folder / temporary_of("a", ended_process()), "half a fi");
  fs::create_directories(folder / temporary_of("d", ended_process()) / "half");
  for (const std::string& name : {living, others, std::string("a.tmp")}) write_text(folder / name, "mine");
  publish_file(folder / "a", std::string_view("whole"));
  FolderPublisher(folder / "d").publish();
  EXPECT_EQ(read_text(folder / "a"), "whole");
  std::vector<std::string> left = {"a", "a.tmp", living, others, "d"};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(names_in(folder.path()), left);
  for (const std::string& name : {living, others}) {
    EXPECT_TRUE(is_temporary_of(name, name.substr(0, name.find('.'))));
    EXPECT_FALSE(is_temporary_of(name, "b"));
  }
  EXPECT_FALSE(is_temporary_of("a.tmp", "a"));
}

TEST(Publish, ReplacesRegularFilesOnly) {
  TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder / "d");
  fs::create_symlink("/dev/null", folder / "link");
  for (const char* name : {"pipe", "d", "link"}) {
    const auto text = error_of([&] { publish_file(folder / name, std::string_view("x")); });
    EXPECT_NE(text.find("no regular file"), text.npos) << text;
  }
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"d", "link", "pipe"}));
}

// Of two that write one folder at a time, one is there whole in the end.
TEST(Publish, TwoWritersDoNotMeet) {
  TempFolder folder;
  std::vector<pid_t> children;
  for (const char* text : {"one", "two"}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int round = 0; round < 20; ++round) {
          FolderPublisher both(folder / "d");
          for (const char* name : {"x", "y"}) publish_file(both.staging() / name, std::string_view(text));
          both.publish();
        }
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_text(folder / "d/x"), read_text(folder / "d/y"));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"d"});
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
  EXPECT_TRUE(names_in(folder.path()).empty());
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

TEST(Publish, AFolderDoesNotReplaceAFile) {
  TempFolder folder;
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
