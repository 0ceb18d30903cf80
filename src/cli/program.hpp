// The program `tandem`: finds the command, turns errors into one line and an exit code.
#pragma once

#include <memory>

#include "src/train/gpu_build.hpp"

namespace tandem {

using MakeGpuBuild = std::unique_ptr<GpuBuild>();

// main(). gpus: none where the program is built without CUDA.
int run_program(int argc, char** argv, MakeGpuBuild* gpus);

}  // namespace tandem
