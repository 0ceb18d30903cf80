// The GPUs of a job: libraries, which rank takes which, what is free on it.
#pragma once

#include <string>

#include "comm/communicator.hpp"
#include "comm/gpu_system.hpp"
#include "src/doctor/report.hpp"

namespace tandem {

// Lines about CUDA, each rank's GPU and NCCL; a single one where system is null: a program built without
// CUDA. may_share: ranks may compute on one GPU (gpu = shared). Collective.
void report_gpus(Report& report, Communicator& comm, const std::string& host, GpuSystem* system,
                 bool may_share);

}  // namespace tandem
