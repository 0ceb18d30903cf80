// `tandem train`: a training run on all ranks of the job. The only command that starts MPI.
#pragma once

#include "src/spec/run_spec.hpp"

namespace tandem {

// Returns the exit code; never throws once MPI is up: an error that all ranks met alike ends in MPI_Finalize, any
// other in MPI_Abort, since a rank that finalises alone would wait for the others for ever.
int train_command(const Config& config);

}  // namespace tandem
