#include "src/cli/stop_signal.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "src/base/signal_thread.hpp"

namespace tandem {

namespace {

std::atomic<std::int64_t> first_ms{-1};  // when the first one came, of the steady clock
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

void note(int signal) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
  std::int64_t none = -1;
  if (first_ms.compare_exchange_strong(none, now) || signal == SIGUSR1) return;
  constexpr std::int64_t kSameWish_ms = 500;
  if (now - none >= kSameWish_ms) _exit(128 + signal);
}

}  // namespace

void note_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
  handle_signals_apart({SIGUSR1, SIGTERM, SIGINT});
}

bool stop_signal_came() { return first_ms.load(std::memory_order_relaxed) >= 0; }

}  // namespace tandem
