// CUDA as this program was built with it, for the commands that use it.
#pragma once

#include "src/cli/program.hpp"

namespace tandem {

void set_gpu_build(MakeGpuBuild* make);
// Made when it is first asked for; none where the program is built without CUDA.
GpuBuild* gpu_build();

}  // namespace tandem
