// run.lock: the process that writes into a run folder, for where the file system's own locks do not tell.
//
// Text of `key = value` lines: host, boot (of its kernel), pid_namespace, pid, start (of the process, in the
// kernel's ticks since boot), since (UTC), job (Slurm's id and restart; "none"), flock (whether run.log was
// locked too). Made whole and only where it is absent, removed at the end; a killed process leaves it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace tandem {

using LockText = std::map<std::string, std::string>;

// What this process would write.
LockText own_lock_text(bool flock);

// Whether the process that wrote a lock is surely gone: one of this host by its number, one of another where
// it was an earlier start of this very Slurm job, or where both had the folder's flock and the file system is
// this machine's own.
bool holder_is_gone(const LockText& holder, const LockText& own, bool own_file_system);

class RunLock {
 public:
  // `flock`: whether this process has the folder's flock. Throws kInput where the file cannot be made, or
  // names a process that is not surely gone, saying what to do.
  RunLock(std::filesystem::path file, bool flock);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // What to say of a lock that was taken over; empty: there was none.
  const std::string& taken_over() const { return taken_over_; }

 private:
  std::filesystem::path file_;
  std::string text_, taken_over_;
};

// "process 17 on node03, since 2025-01-31T12:00:00Z" of that file; empty where there is none.
std::string lock_holder(const std::filesystem::path& file);

}  // namespace tandem
