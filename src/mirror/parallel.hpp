// Work on independent items by several threads, whose results are taken in the items' order: so sums have the
// same bits for any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::mirror {

// take(i, compute(i)) for i = 0..n-1; `take` never runs twice at once. The first item's exception, in order,
// is thrown.
template <class Compute, class Take>
void in_order(int threads, std::size_t n, Compute compute, Take take) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable turned;
  std::size_t turn = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < n;) {
      std::exception_ptr own;
      const auto take_turn = [&](auto&& action) {
        std::unique_lock lock(mutex);
        turned.wait(lock, [&] { return turn == i; });
        if (!failure) action();
        ++turn;
        turned.notify_all();
        return !failure;
      };
      try {
        auto result = compute(i);
        const bool go_on = take_turn([&] {
          try {
            take(i, std::move(result));
          } catch (...) {
            failure = std::current_exception();
          }
        });
        if (!go_on) next = n;
      } catch (...) {
        take_turn([&] { failure = std::current_exception(); });
        next = n;
      }
    }
  };
  const auto helpers = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), n);
  std::vector<std::thread> pool;
  for (std::size_t i = 1; i < helpers; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem::mirror
