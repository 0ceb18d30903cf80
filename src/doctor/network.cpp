#include "src/doctor/network.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

double calendar_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string decimals(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Finding check_all_reduce(Communicator& comm, double seconds) {
  if (comm.size() == 1) return ok("one rank: nothing to sum");
  constexpr std::size_t kElements = std::size_t{8} << 20;
  const auto n_ranks = static_cast<std::uint64_t>(comm.size());
  std::vector<std::int64_t> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i)
    values[i] = static_cast<std::int64_t>(i * static_cast<std::uint64_t>(comm.rank() + 1));

  constexpr int kSmall = 20;
  comm.barrier();
  const double before = now_s();
  for (int i = 0; i < kSmall; ++i) (void)comm.all_reduce_sum(std::uint64_t{1});
  const double small_s = (now_s() - before) / kSmall;

  // Element i starts as i (r + 1) on rank r; the first sum is i R (R + 1) / 2, each later one R times the
  // last.
  std::uint64_t factor = n_ranks * (n_ranks + 1) / 2, rounds = 0;
  double best_s = 1e300, spent_s = 0.0;
  for (bool more = true; more; ++rounds) {
    const double start = now_s();
    comm.all_reduce_sum(values);
    const double round_s = now_s() - start;
    // The first meets memory that is not there yet.
    if (rounds > 0) {
      best_s = std::min(best_s, round_s);
      spent_s += round_s;
      factor *= n_ranks;
    }
    more = comm.all_gather_value(rounds == 0 || spent_s < seconds ? 1 : 0)[0] != 0;
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < kElements; ++i)
    wrong += static_cast<std::uint64_t>(values[i]) != i * factor ? 1u : 0u;
  wrong = comm.all_reduce_sum(wrong);
  if (wrong > 0)
    return failure(ErrorKind::kDevice, cat(wrong, " sums of ", rounds,
                                           " rounds are wrong: the network or the MPI library changes data; "
                                           "another transport (mpirun --mca btl tcp,self) would tell which"));
  const auto bytes = static_cast<double>(kElements * sizeof(std::int64_t));
  // Of rank 0, so that all say the same.
  const double speed = comm.all_gather_value(1e-9 * bytes * static_cast<double>(rounds - 1) / spent_s)[0];
  const double fastest = comm.all_gather_value(1e-9 * bytes / best_s)[0];
  const double latency_us = comm.all_gather_value(1e6 * small_s)[0];
  const std::string text = cat(decimals("%.2f GB/s", speed), decimals(" (best %.2f)", fastest),
                               " summing 64 MiB over ", comm.size(), " ranks ", counted(rounds, "time"),
                               ", every bit right; ", decimals("%.0f us", latency_us), " for one number");
  constexpr double kSlow = 0.1;
  if (speed < kSlow)
    return note(
        cat(text,
            ": slow: more ranks than cores, or the wrong network (mpirun --mca btl_tcp_if_include NETWORK)"));
  return ok(text);
}

Finding check_clocks(Communicator& comm) {
  if (comm.size() == 1) return ok("one rank: nothing to compare");
  // What is left of a round in which no message was late is the difference of the clocks.
  double least = 1e300;
  int early = 0, late = 0;
  for (int round = 0; round < 8; ++round) {
    comm.barrier();
    const std::vector<double> all = comm.all_gather_value(calendar_s());
    const auto [low, high] = std::minmax_element(all.begin(), all.end());
    if (*high - *low >= least) continue;
    least = *high - *low;
    early = static_cast<int>(low - all.begin());
    late = static_cast<int>(high - all.begin());
  }
  const std::string text = cat("at most ", decimals("%.3f s", least), " apart");
  constexpr double kFar = 1.0;
  if (least > kFar)
    return note(cat(
        text, " (ranks ", early, " and ", late,
        "): times of files and logs will not fit; let the nodes take their time from one server (chrony)"));
  return ok(text);
}

}  // namespace tandem
