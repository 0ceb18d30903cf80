#include "src/train/run_lock.hpp"

#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>

#include "io/publish.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/host.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("run.out: ", path.string(), ": ", why));
}

std::string content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string first_line(const fs::path& file) {
  const std::string text = content_of(file);
  return text.substr(0, text.find('\n'));
}

// The kernel's ticks between boot and the process's start: tells it from a later one of the same number.
// Empty where there is none such, or one that has ended and is only not yet waited for.
std::string start_of(pid_t pid) {
  const std::string stat = content_of(cat("/proc/", pid, "/stat"));
  // The name, in brackets, may hold anything. Behind it come the state and, as the 20th, the start.
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string state, field;
  fields >> state;
  for (int i = 1; i < 20; ++i) fields >> field;
  return fields && state != "Z" && state != "X" ? field : "";
}

std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value && *value ? value : otherwise;
}

std::string value_of(const LockText& text, const std::string& key) {
  const auto found = text.find(key);
  return found == text.end() ? "" : found->second;
}

std::string written(const LockText& text) {
  std::string all;
  for (const auto& [key, value] : text) all += cat(key, " = ", value, "\n");
  return all;
}

LockText parsed(const std::string& text) {
  LockText all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find(" = "); at != line.npos)
      all[line.substr(0, at)] = line.substr(at + 3);
  return all;
}

std::string holder_text(const LockText& holder) {
  if (holder.empty()) return "a process that it does not name";
  return printable_line(cat("process ", value_of(holder, "pid"), " on ", value_of(holder, "host"), ", since ",
                            value_of(holder, "since")));
}

// Mounted by one machine at a time, so that its flock is all there is.
bool is_own_file_system(const fs::path& folder) {
  constexpr std::array<std::uint32_t, 8> kOwn = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC,
                                                 TMPFS_MAGIC,      OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
                                                 0x2FC12FC1,   // ZFS
                                                 0xCA451A4E};  // bcachefs
  struct statfs about {};
  return statfs(folder.c_str(), &about) == 0 &&
         std::find(kOwn.begin(), kOwn.end(), static_cast<std::uint32_t>(about.f_type)) != kOwn.end();
}

// Makes the file with this text where none is; false where one is.
bool made(const fs::path& file, const std::string& text) {
  FilePublisher publisher(file);
  publisher.write(text);
  return publisher.publish_new();
}

// False where another process took it over first.
bool removed(const fs::path& file, const std::string& text) {
  const fs::path away = temporary_name(file, ".old");
  std::error_code error;
  fs::rename(file, away, error);
  if (error) return false;
  const bool same = content_of(away) == text;
  if (!same) fs::create_hard_link(away, file, error);
  fs::remove(away, error);
  return same;
}

}  // namespace

LockText own_lock_text(bool flock) {
  std::error_code error;
  const std::string job = variable("SLURM_JOB_ID", "none");
  return {{"host", host_name()},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"pid_namespace", fs::read_symlink("/proc/self/ns/pid", error).string()},
          {"pid", cat(getpid())},
          {"start", start_of(getpid())},
          {"since", utc_now()},
          {"job", job == "none" ? job : cat(job, " ", variable("SLURM_RESTART_COUNT", "0"))},
          {"flock", flock ? "true" : "false"}};
}

bool holder_is_gone(const LockText& holder, const LockText& own, bool own_file_system) {
  const auto same = [&](const char* key) {
    return !value_of(holder, key).empty() && value_of(holder, key) == value_of(own, key);
  };
  if (same("host") && same("boot") && same("pid_namespace")) {
    const std::string text = value_of(holder, "pid");
    pid_t pid = 0;
    std::from_chars(text.data(), text.data() + text.size(), pid);
    if (pid <= 0) return true;
    if (kill(pid, 0) != 0) return errno == ESRCH;  // else another user's, whose start may be hidden
    return start_of(pid) != value_of(holder, "start");
  }
  if (own_file_system && value_of(own, "flock") == "true" &&
      (holder.empty() || value_of(holder, "flock") == "true"))
    return true;
  const bool boots_known = !value_of(holder, "boot").empty() && !value_of(own, "boot").empty();
  if (same("host") && boots_known && !same("boot")) return true;  // it was started anew since
  // A job that Slurm starts again under its own number has ended before.
  const std::string job = value_of(holder, "job"), mine = value_of(own, "job");
  return job != mine && job != "none" && !job.empty() &&
         job.substr(0, job.find(' ')) == mine.substr(0, mine.find(' '));
}

RunLock::RunLock(fs::path file, bool flock) : file_(std::move(file)) {
  const LockText own = own_lock_text(flock);
  text_ = written(own);
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (made(file_, text_)) return;
    const std::string there = content_of(file_);
    std::error_code error;
    if (!fs::exists(file_, error)) continue;  // it ended just now
    const LockText holder = parsed(there);
    if (!holder_is_gone(holder, own, is_own_file_system(file_.parent_path()))) {
      // Killed processes lose the flock a moment before they are gone.
      if (flock && value_of(holder, "flock") == "true" && attempt < kAttempts - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        continue;
      }
      const bool here = value_of(holder, "host") == value_of(own, "host");
      fail(file_, cat("another run is going on there (", holder_text(holder), "); choose another folder, or ",
                      here ? "end it first" : "delete this file if that process is gone"));
    }
    if (removed(file_, there))
      taken_over_ = cat("run.lock taken over from ", holder_text(holder), ", which is gone");
  }
  fail(file_, "other processes make and remove it all the time");
}

RunLock::~RunLock() {
  std::error_code ignored;
  if (content_of(file_) == text_) fs::remove(file_, ignored);
}

std::string lock_holder(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error) ? holder_text(parsed(content_of(file))) : "";
}

}  // namespace tandem
