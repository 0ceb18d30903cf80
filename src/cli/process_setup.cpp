#include "src/cli/process_setup.hpp"

#include <malloc.h>

#include "comm/communicator.hpp"
#include "comm/topology.hpp"

namespace tandem {

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

CpuContext one_process_context(int threads) {
  keep_freed_memory();
  SingleCommunicator alone;
  const Placement placement = place(alone, threads);
  pin_threads(placement.share);
  return CpuContext(placement.share.threads);
}

CpuContext unbound_context(int threads) {
  keep_freed_memory();
  SingleCommunicator alone;
  return CpuContext(place(alone, threads).share.threads);
}

}  // namespace tandem
