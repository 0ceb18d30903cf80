// What the control groups of this process (Linux cgroups, version 1 or 2) allow it, and what they count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

namespace tandem {

struct GroupLimits {
  // The least of the group and those above it; the largest number where there is none.
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();
  double cpus = std::numeric_limits<double>::infinity();  // CPU time per time
};

// Since the groups were made; 0 where the system does not count.
struct GroupCounts {
  std::int64_t throttled = 0;     // periods in which the CPU time ran out
  double throttled_s = 0.0;       // the time waited then
  std::int64_t memory_short = 0;  // times that the limit of memory was met and pages had to be given up
};

// Never throw: what cannot be read is no limit. `root`: where /proc and /sys are, for tests.
GroupLimits control_group_limits(const std::filesystem::path& root = "/");
GroupCounts control_group_counts(const std::filesystem::path& root = "/");

}  // namespace tandem
