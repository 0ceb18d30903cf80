// Writes trajectories of the study's size: large_trajectory FILE [STACK [DIFFERENCE [STACK_SEED [UPDATES]]]]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "tests/bench/large_trajectory.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE [STACK [DIFFERENCE [STACK_SEED [UPDATES]]]]\n", argv[0]);
    return 2;
  }
  try {
    tandem::bench::LargeTrajectory options;
    if (argc > 2) options.stack = argv[2];
    if (argc > 3) options.difference = std::atof(argv[3]);
    if (argc > 4) options.stack_seed = std::strtoull(argv[4], nullptr, 10);
    if (argc > 5) options.updates = std::atoll(argv[5]);
    tandem::bench::write_large_trajectory(argv[1], options);
    std::printf("%s: %.1f MB\n", argv[1], 1e-6 * static_cast<double>(std::filesystem::file_size(argv[1])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
