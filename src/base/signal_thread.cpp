#include "src/base/signal_thread.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

namespace tandem {

void handle_signals_apart(std::initializer_list<int> signals) {
  sigset_t set, all, before;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  sigfillset(&all);
  // The new thread inherits the whole block, and lifts it for its own.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([set] {
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    while (true) pause();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace tandem
