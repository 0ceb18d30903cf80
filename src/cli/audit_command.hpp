// `tandem audit`: the mirror's verdict on one stored update of a run that has ended.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

namespace tandem {

struct AuditJob {
  std::filesystem::path snapshot;  // RUN/native.snapshots/STEP.h5
  // Where the run's inputs lie now; empty: where the run found them.
  std::string model = {}, train = {}, held_out = {}, lora_init = {}, calibration = {};
  int threads = 1;
  bool json = false;
};

// Returns 0 for PASS, 5 otherwise. Throws kInput: files that are not there or not those of the run.
int audit_command(const AuditJob& job, std::ostream& out);

}  // namespace tandem
