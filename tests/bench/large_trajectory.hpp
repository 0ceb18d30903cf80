// Trajectories as large as the study's run leaves them (Qwen3-0.6B, rank 16 on all modules, 10,536 updates,
// 43 evaluations), without training: for time, size and memory of what reads them, and as pairs for
// comparing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem::bench {

struct LargeTrajectory {
  std::string stack = "native";
  std::uint64_t seed = 1;  // of all that the stacks of a pair share
  // Relative standard deviation of what this stack computes otherwise than another, at update 1; it grows
  // with the square root of the updates. 0: none.
  double difference = 0.0;
  std::uint64_t stack_seed = 2;  // draws these differences

  std::int64_t updates = 10'536, n_train = 168'574, n_held_out = 3'440;
  std::int64_t layers = 28, probe = 512;
  std::int64_t audit_every = 100, observe_every = 10;  // updates; 0: none
};

// Valid after io/FORMAT.md and consistent in itself; values are drawn around what such a run shows. Takes a
// second or two.
void write_large_trajectory(const std::filesystem::path& file, const LargeTrajectory& options);

}  // namespace tandem::bench
