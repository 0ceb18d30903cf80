// This process's place as its launcher says, for messages written before MPI is up.
#pragma once

namespace tandem {

struct LaunchRank {
  int rank = 0;
  int size = 1;
};

// From the variables of Open MPI, PMI and Slurm's step; {0, 1} without a launcher.
LaunchRank launch_rank();

}  // namespace tandem
