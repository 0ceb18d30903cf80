// How a process of this program sets itself up for computing.
#pragma once

#include "kernels/context.hpp"

namespace tandem {

// The products' packing buffers come from malloc; kept, they fault once and not in every product.
void keep_freed_memory();

// For a command that runs as one process: its threads started, bound to the CPUs it may use. threads 0: one
// for each core.
CpuContext one_process_context(int threads);
// The same without binding them: threads of another kind that the command starts use the same CPUs.
CpuContext unbound_context(int threads);

}  // namespace tandem
