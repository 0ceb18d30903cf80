// `tandem train`: a training run on all ranks of the job. The only command that starts MPI.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/spec/run_spec.hpp"

namespace tandem {

// Returns the exit code; never throws once MPI is up: an error that all ranks met alike ends in MPI_Finalize,
// any other in MPI_Abort, since a rank that finalises alone would wait for the others for ever. read_config
// runs on every rank, since files may differ between nodes; an error of one is said once and ends all. words:
// those after `tandem train`, from which a run that is stopped says how to go on.
int train_command(const std::function<Config()>& read_config, const std::vector<std::string>& words);

// The command line that goes on with a run of `ranks` ranks.
std::string resuming_command(const std::vector<std::string>& words, int ranks);

}  // namespace tandem
