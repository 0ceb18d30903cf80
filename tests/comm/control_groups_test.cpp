#include "comm/control_groups.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

void write(const TempFolder& root, const std::string& file, const std::string& text) {
  std::filesystem::create_directories((root / file).parent_path());
  support::write_text(root / file, text);
}

TEST(ControlGroups, Version2HoldsTheLeastOfAJobsGroups) {
  const TempFolder root;
  write(root, "proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write(root, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  write(root, "sys/fs/cgroup/slurm/memory.max", "max\n");
  write(root, "sys/fs/cgroup/slurm/job_7/memory.max", "1073741824\n");
  write(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write(root, "sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n");
  write(root, "sys/fs/cgroup/slurm/job_7/cpu.max", "150000 100000\n");
  write(root, "sys/fs/cgroup/slurm/job_7/cpu.stat", "usage_usec 9\nnr_throttled 4\nthrottled_usec 2500000\n");
  write(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.events", "low 0\nhigh 3\nmax 2\noom 0\n");
  const GroupLimits limits = control_group_limits(root.path());
  EXPECT_EQ(limits.memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(limits.cpus, 1.5);
  const GroupCounts counts = control_group_counts(root.path());
  EXPECT_EQ(counts.throttled, 4);
  EXPECT_DOUBLE_EQ(counts.throttled_s, 2.5);
  EXPECT_EQ(counts.memory_short, 5);
}

TEST(ControlGroups, Version1HasAHierarchyForEachController) {
  const TempFolder root;
  write(root, "proc/self/cgroup", "5:cpuset:/x\n4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n");
  write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912\n");
  write(root, "sys/fs/cgroup/memory/job/memory.failcnt", "7\n");
  write(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  write(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat",
        "nr_periods 9\nnr_throttled 2\nthrottled_time 500000000\n");
  const GroupLimits limits = control_group_limits(root.path());
  EXPECT_EQ(limits.memory_bytes, 536870912);
  EXPECT_EQ(limits.cpus, 0.5);
  const GroupCounts counts = control_group_counts(root.path());
  EXPECT_EQ(counts.throttled, 2);
  EXPECT_DOUBLE_EQ(counts.throttled_s, 0.5);
  EXPECT_EQ(counts.memory_short, 7);
}

// In a container the path is often that outside.
TEST(ControlGroups, AGroupThatIsNotVisibleIsTheTop) {
  const TempFolder root;
  write(root, "proc/self/cgroup", "0::/docker/1a2b\n");
  write(root, "sys/fs/cgroup/cgroup.controllers", "memory\n");
  write(root, "sys/fs/cgroup/memory.max", "67108864\n");
  EXPECT_EQ(control_group_limits(root.path()).memory_bytes, 67108864);
}

TEST(ControlGroups, WithoutThemThereIsNoLimit) {
  const TempFolder root;
  EXPECT_EQ(control_group_limits(root.path()).memory_bytes, kNoLimit);
  write(root, "proc/self/cgroup", "4:memory:/\nnonsense\n0::/\n");
  write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(control_group_limits(root.path()).memory_bytes, kNoLimit);
  EXPECT_TRUE(std::isinf(control_group_limits(root.path()).cpus));
  EXPECT_EQ(control_group_counts(root.path()).throttled, 0);
  EXPECT_NO_THROW(control_group_counts());
}

}  // namespace
}  // namespace tandem
