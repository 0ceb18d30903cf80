// Free-running trajectories drift apart by rounding alone, as far as replicates of one stack do; with
// replicates, B is judged by that envelope (README.md, "Replicates").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/compare/checks.hpp"

namespace tandem {

// How one series of a candidate lies among those of replicates, all [n_replicates][n].
struct Envelope {
  double statistic = 0.0;  // S of the candidate: max_t |x_t - mean of the others| / sd of the others
  double limit = 0.0;      // the largest S of the replicates, or Student's
  bool by_rank = false;    // else parametric
  double false_alarms = 1.0;
  std::size_t at = 0;  // first t where it is above the limit, else where it is largest
  double seen = 0.0;   // median over t of limit times sd, relative to the values
};
// Replicates needed: for the rank test, and for Student's t.
inline constexpr std::size_t kRankReplicates = 19, kFewestReplicates = 4;

// What sets a candidate of another stack apart from replicates though neither is wrong.
struct OtherRounding {
  double scale = 1.0;             // how many times as far as replicates its states may be apart, >= 1
  std::vector<double> pass = {};  // [n] what rounding one pass over the same state does, absolute; empty: 0
  double of_pass(std::size_t t) const { return t < pass.size() ? pass[t] : 0.0; }
};

// nullopt where replicates are too few or nowhere differ.
std::optional<Envelope> envelope_of(std::span<const double> candidate,
                                    const std::vector<std::vector<double>>& replicates,
                                    const OtherRounding& rounding = {});

// pair: of A and B. all: A, B, then replicates of A's stack. Throws kInput where one is of another stack,
// precision or spec.
void check_replicates(const Pair& pair, std::span<const Trajectory> all, Observations& out);

}  // namespace tandem
