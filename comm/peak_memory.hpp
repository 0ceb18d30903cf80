// Peak memory of a run: resident set high-water marks, in bytes.
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"

namespace tandem {

// Of this process so far (VmHWM; pages of mapped files and shared memory included).
std::int64_t peak_memory_bytes();

struct PeakMemory {
  std::int64_t rank_bytes = 0;  // the largest rank
  std::int64_t node_bytes =
      0;  // the largest sum over the ranks of one node; pages they share count once for each
};
// Collective over both; node = comm.node(), made once.
PeakMemory gather_peak_memory(Communicator& comm, Communicator& node);

}  // namespace tandem
