// A signal's handler must not run on a thread that multiplies matrices: signal_thread.hpp says why.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/product.hpp"
#include "src/base/signal_thread.hpp"

namespace tandem {
namespace {

std::atomic<long> handled{0};

// Products under a storm of signals; exit code 0 where all have the first one's bits.
[[noreturn]] void multiply_while_signalled() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  handle_signals_apart({SIGUSR2});
  std::atomic<bool> over{false};
  std::thread storm([&] {
    while (!over) {
      kill(getpid(), SIGUSR2);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  const CpuContext ctx(2);
  constexpr std::int64_t kSide = 192;
  std::vector<float> a(kSide * kSide, 0.5f), c(kSide * kSide), first;
  const auto view = [](std::vector<float>& v) { return Matrix{v.data(), kSide, kSide, kSide}; };
  const auto multiply = [&] {
    const ProductTerm term{.a = view(a), .b = view(a), .op_b = Op::kTransposed};
    product(ctx, view(c), {}, std::span(&term, 1));
  };
  multiply();
  first = c;
  bool same = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (same && std::chrono::steady_clock::now() < end) {
    multiply();
    same = c == first;
  }
  over = true;
  storm.join();
  _exit(same && handled > 100 ? 0 : 1);
}

TEST(Signals, DoNotDisturbProducts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // no thread from before
  EXPECT_EXIT(multiply_while_signalled(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem
