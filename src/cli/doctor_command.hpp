// `tandem doctor`: whether this machine or job is fit for a run (src/doctor), on all ranks of the job.
#pragma once

#include <filesystem>
#include <iosfwd>

namespace tandem {

struct DoctorOptions {
  std::filesystem::path out = ".";  // where run folders will lie
  int seconds = 5;                  // of the all-reduce
  int threads = 0;                  // per rank, as the key `threads`
};

// Prints a line for each check. Returns 0 where nothing would stop a run, else the code with which it would
// end.
int doctor_command(const DoctorOptions& options, std::ostream& out);

}  // namespace tandem
