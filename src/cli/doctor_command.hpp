// `tandem doctor`: whether this machine or job is fit for a run (src/doctor), on all ranks of the job.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "comm/gpu_system.hpp"

namespace tandem {

struct DoctorOptions {
  std::filesystem::path out = ".";  // where run folders will lie
  int seconds = 5;                  // of the all-reduce
  int threads = 0;                  // per rank, as the key `threads`
  GpuSystem* gpus = nullptr;        // none: a program built without CUDA
  bool may_share_gpus = false;      // gpu = shared
};

// Prints a line for each check. Returns 0 where nothing would stop a run, else the code with which it would
// end.
int doctor_command(const DoctorOptions& options, std::ostream& out);

}  // namespace tandem
