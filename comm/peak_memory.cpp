#include "comm/peak_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem {

std::int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    std::int64_t kib = 0;
    if (status >> kib) return kib * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

PeakMemory gather_peak_memory(Communicator& comm, Communicator& node) {
  const std::int64_t mine = peak_memory_bytes();
  const auto of_node = static_cast<std::int64_t>(node.all_reduce_sum(static_cast<std::uint64_t>(mine)));
  PeakMemory peak;
  for (const PeakMemory& other : comm.all_gather_value(PeakMemory{mine, of_node})) {
    peak.rank_bytes = std::max(peak.rank_bytes, other.rank_bytes);
    peak.node_bytes = std::max(peak.node_bytes, other.node_bytes);
  }
  return peak;
}

}  // namespace tandem
