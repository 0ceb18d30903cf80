// Ends this process where its ranks cannot go on: a rank that is stopped, or lost without a word, leaves the
// others in a collective that never ends. A thread of each rank tells the others by UDP, beside MPI and
// without it, whether its process lives; so a rank that computes for hours is waited for, and one that does
// not answer is named soon. A process whose launcher (its parent) is gone ends too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

struct WatchdogLimits {
  double start_s = 120;  // for all ranks to come together in the first collective
  double ask_s = 3;      // in one collective, before the others are asked
  double silent_s = 10;  // without an answer, while asked: the rank is lost
  double stuck_s = 300;  // every rank lives and waits, none goes on: communication itself hangs
};

// What this process is doing, for its watchdog and for others'. Written by the training thread.
class Waiting {
 public:
  // `what` must live for ever (a literal); count: elements or bytes.
  void enter(const char* what, std::uint64_t count) {
    count_.store(count, std::memory_order_relaxed);
    what_.store(what, std::memory_order_relaxed);
    sequence_.fetch_add(1, std::memory_order_release);
  }
  void leave() {
    what_.store(nullptr, std::memory_order_relaxed);
    sequence_.fetch_add(1, std::memory_order_release);
  }
  // A part of the collective is done.
  void goes_on() { sequence_.fetch_add(1, std::memory_order_release); }
  void at_update(std::int64_t update) { update_.store(update, std::memory_order_relaxed); }

  std::int64_t update() const { return update_.load(std::memory_order_relaxed); }
  bool now() const { return what_.load(std::memory_order_relaxed) != nullptr; }
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_acquire); }
  // "all_reduce_sum(4096) update 12"
  std::string text() const;

 private:
  std::atomic<const char*> what_{nullptr};
  std::atomic<std::uint64_t> count_{0}, sequence_{0};
  std::atomic<std::int64_t> update_{0};
};

// While it lives, the watchdog knows what this rank waits in. waiting: null where there is no watchdog.
class InCollective {
 public:
  // `what` must live for ever (a literal); count: elements or bytes.
  InCollective(Waiting* waiting, const char* what, std::uint64_t count) : waiting_(waiting) {
    if (waiting_) waiting_->enter(what, count);
  }
  ~InCollective() {
    if (waiting_) waiting_->leave();
  }
  void goes_on() const {
    if (waiting_) waiting_->goes_on();
  }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

 private:
  Waiting* waiting_;
};

// From its making to its end, ends the process (`line` on stderr, _exit(4)) after `seconds`: for what may
// wait for other ranks where no Watchdog sees it.
class TimeLimit {
 public:
  TimeLimit(std::string line, double seconds);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// That of what all ranks must do together before there is a Watchdog.
class StartLimit : public TimeLimit {
 public:
  StartLimit(const std::string& what, double seconds, int rank);
};

class Watchdog {
 public:
  // A socket of this process; `address()` is for the others, who hand theirs to start(). Never throws: where
  // no socket can be had, the address is empty and this rank is not watched.
  Watchdog(int rank, WatchdogLimits limits);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // "host port ip ip ...", all IPv4 addresses of this host.
  const std::string& address() const;
  // Begins to watch. addresses: those of all ranks, in their order; job: the same number on all, and no other
  // job's. A rank that has never answered (a network that lets no UDP pass) is never called lost.
  void start(const std::vector<std::string>& addresses, std::uint64_t job);

  Waiting& waiting();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
