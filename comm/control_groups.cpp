#include "comm/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace tandem {

namespace {

namespace fs = std::filesystem;

// A number at the beginning of a file; none where it says "max" or is absent.
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// The number behind `key` in lines "key number"; 0 without one.
std::int64_t count_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  std::int64_t value = 0;
  while (in >> name >> value)
    if (name == key) return value;
  return 0;
}

struct Group {
  fs::path top, own;  // the folder of the hierarchy, the group's own; own lies in top
  bool version_2 = false;
};

bool names(const std::string& controllers, const std::string& controller) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');)
    if (name == controller) return true;
  return false;
}

// The group in the hierarchy of `controller`. A container may see its own group as the top, and read a path
// that leads nowhere.
std::optional<Group> group_of(const fs::path& root, const std::string& controller) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::error_code error;
  std::ifstream in(root / "proc/self/cgroup");
  std::optional<Group> found;
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !names(controllers, controller)) continue;
    fs::path top = version_2 ? mounts : mounts / controllers;
    if (!version_2 && !fs::is_directory(top, error)) top = mounts / controller;
    const fs::path own = top / fs::path(line.substr(second + 1)).relative_path();
    const Group group{top, fs::is_directory(own, error) ? own : top, version_2};
    if (!version_2) return group;
    // Where both versions are mounted, controllers are mostly those of version 1.
    if (fs::exists(top / "cgroup.controllers", error)) found = group;
  }
  return found;
}

// From the group to the top.
void upwards(const Group& group, const std::function<void(const fs::path&)>& visit) {
  for (fs::path folder = group.own;; folder = folder.parent_path()) {
    visit(folder);
    if (folder == group.top || folder == folder.parent_path()) return;
  }
}

double cpus_of(const fs::path& folder, bool version_2) {
  double quota = 0.0, period = 0.0;
  if (version_2) {
    std::ifstream in(folder / "cpu.max");
    if (!(in >> quota >> period)) return std::numeric_limits<double>::infinity();  // "max 100000"
  } else {
    quota = static_cast<double>(number_in(folder / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(number_in(folder / "cpu.cfs_period_us").value_or(0));
  }
  return quota > 0.0 && period > 0.0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

GroupLimits control_group_limits(const fs::path& root) {
  GroupLimits limits;
  if (const auto memory = group_of(root, "memory"))
    upwards(*memory, [&](const fs::path& folder) {
      const auto limit = number_in(folder / (memory->version_2 ? "memory.max" : "memory.limit_in_bytes"));
      // Version 1 writes the largest number of whole pages for none.
      if (limit && *limit < (std::int64_t{1} << 60))
        limits.memory_bytes = std::min(limits.memory_bytes, *limit);
    });
  if (const auto cpu = group_of(root, "cpu"))
    upwards(*cpu, [&](const fs::path& folder) {
      limits.cpus = std::min(limits.cpus, cpus_of(folder, cpu->version_2));
    });
  return limits;
}

GroupCounts control_group_counts(const fs::path& root) {
  GroupCounts counts;
  // A parent that is throttled stops its groups, and counts it itself.
  if (const auto cpu = group_of(root, "cpu"))
    upwards(*cpu, [&](const fs::path& folder) {
      counts.throttled += count_in(folder / "cpu.stat", "nr_throttled");
      counts.throttled_s += cpu->version_2
                                ? 1e-6 * static_cast<double>(count_in(folder / "cpu.stat", "throttled_usec"))
                                : 1e-9 * static_cast<double>(count_in(folder / "cpu.stat", "throttled_time"));
    });
  if (const auto memory = group_of(root, "memory")) {
    if (memory->version_2)
      for (const char* key : {"high", "max"})
        counts.memory_short += count_in(memory->own / "memory.events", key);
    else
      counts.memory_short = number_in(memory->own / "memory.failcnt").value_or(0);
  }
  return counts;
}

}  // namespace tandem
