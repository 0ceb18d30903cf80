// What this program was built from and with, and the libraries it runs on.
#pragma once

#include <string>

#include "comm/gpu_system.hpp"

namespace tandem {

struct Version {
  std::string version;            // "0.1.0"
  std::string git;                // revision, "-dirty" where files differ from it; "" unknown
  std::string compiler;           // "GCC 12.2.0"
  std::string build_type;         // "Release"
  std::string arch;               // -march of the build: "native"
  std::string instruction_set;    // what oneDNN computes with on this CPU
  std::string onednn, hdf5, mpi;  // of the libraries that are loaded
  std::string gpus;               // driver, CUDA, cuBLASLt, NCCL; "" built without CUDA
};

// gpus: none in a program built without CUDA.
Version version(GpuSystem* gpus = nullptr);
// "0.1.0 1a2b3c4d5e6f GCC 12.2.0 Release -march=native": the execution's `build`, equal for equal binaries.
std::string build_text(const Version& version);

std::string version_text(const Version& version);  // for people, several lines
std::string version_json(const Version& version);  // one line

}  // namespace tandem
