// The mirror beside training: its own thread, which takes updates to audit from a bounded queue, makes the
// free run between them, and leaves messages. The thread that trains calls everything here; it alone talks to
// other ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/audit/messages.hpp"
#include "src/audit/mirror_state.hpp"
#include "src/audit/mismatch_policy.hpp"
#include "src/audit/update_job.hpp"
#include "src/mirror/mirror.hpp"

namespace tandem {

struct MirrorOptions {
  mirror::Inputs inputs;
  bool audits = false, free_run = false;
  std::string precision = "f32";      // of native: whose rounding is expected
  std::filesystem::path calibration;  // folder; empty: none
  std::int64_t every = 0;             // updates between audits
  double share_of_update = 1.0;       // of an update's samples that an audit computes
  bool stop_on_mismatch = false;
  std::int64_t snapshot_every = 0;
  std::vector<std::string> snapshot_what;
  std::int64_t observe_every = 0;
  std::vector<int> cpus;  // empty: wherever the system likes
};

class MirrorThread {
 public:
  // Starts the thread. Its first message tells the expected cost; ready() waits for it. begin: the state that
  // another one left.
  explicit MirrorThread(MirrorOptions options, MirrorState begin = {});
  // Gives up what is not done.
  ~MirrorThread();
  MirrorThread(const MirrorThread&) = delete;
  MirrorThread& operator=(const MirrorThread&) = delete;

  // Asked now and then by what waits below, which then throws Error(kStopped) where it says true.
  using Interrupted = std::function<bool()>;

  // Until inputs are read and the cost is told. Throws what the thread threw.
  void wait_until_ready(const Interrupted& interrupted = {});

  // A job that is in work and kWaiting behind it are the most that are held.
  static constexpr std::size_t kWaiting = 1;
  bool can_take();
  void wait_until_it_can_take(const Interrupted& interrupted = {});
  void give(UpdateJob job);
  // Before the first job or after the last.
  void give_weights(BaseWeights weights);
  void note_skipped(std::int64_t step);
  // No more jobs come; the free run goes on to its end.
  void close();

  struct Mail {
    std::vector<MirrorMessage> messages;
    bool stop = false;  // a mismatch that ends the run
    bool done = false;  // after close(): nothing is left to do
  };
  // What has come since; waits up to `seconds` for something. Throws what the thread threw. state: if given,
  // that at which exactly these messages and those before had come; the work goes on meanwhile.
  Mail take(double seconds = 0.0, MirrorState* state = nullptr);

 private:
  void run();
  void work(const mirror::Mirror& mirror);
  void audit(const mirror::Mirror& mirror, const UpdateJob& job);
  void look_at_weights(const mirror::Mirror& mirror, const BaseWeights& weights);
  void advance(FreeRun& free);
  void end_with(Verdict verdict);  // as mirror.on_mismatch says; under mutex_
  void post(MirrorMessage message);
  template <class Condition>
  void wait(const Interrupted& interrupted, Condition condition);
  // nullptr: none, or base weights come first. Both stay in state_ until their messages are there.
  std::shared_ptr<const UpdateJob> next_job(bool wait);
  std::optional<BaseWeights> next_weights();
  void tell_costs(const mirror::Mirror& mirror);

  MirrorOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Always that of the messages: each piece of work changes it and leaves its messages at one stroke. What
  // is in work stands first in its queue until then: a job where working_ says so. Messages go out in the
  // order of updates: one that was skipped waits for the audits before it.
  MirrorState state_;
  MismatchPolicy policy_;
  std::vector<MirrorMessage> messages_;
  std::exception_ptr failure_;
  bool ready_ = false, working_ = false, closed_ = false, stop_ = false, done_ = false;
  std::atomic<bool> given_up_ = false;
  std::thread thread_;
};

}  // namespace tandem
