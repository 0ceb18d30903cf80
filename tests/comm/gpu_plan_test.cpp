#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/gpu_system.hpp"
#include "src/base/error.hpp"
#include "tests/support/played_gpus.hpp"

namespace tandem {
namespace {

using support::PlayedSystem;

using Seen = std::vector<std::vector<std::string>>;
using Picked = std::vector<std::optional<int>>;

// local rank, ranks and devices that each of them sees, all the same ones.
std::optional<int> pick(int local_rank, int local_size, int n_visible) {
  std::vector<std::string> all;
  for (int i = 0; i < n_visible; ++i) all.push_back("0000:0" + std::to_string(i) + ":00.0");
  return pick_gpus(Seen(static_cast<std::size_t>(local_size), all))[static_cast<std::size_t>(local_rank)];
}

TEST(PickGpus, RanksThatSeeTheSameTakeThemInOrderAndRoundAgain) {
  EXPECT_EQ(pick(0, 1, 1), 0);
  EXPECT_EQ(pick(1, 2, 2), 1);
  EXPECT_EQ(pick(1, 2, 1), 0);
  EXPECT_EQ(pick(3, 4, 2), 1);
  EXPECT_EQ(pick(2, 4, 2), 0);
  EXPECT_EQ(pick(7, 8, 8), 7);
  EXPECT_EQ(pick(0, 1, 0), std::nullopt);
  EXPECT_EQ(pick(1, 3, 8), 1);
}

// srun --gpus-per-task=1, or a wrapper: each rank's one device is number 0.
TEST(PickGpus, ARankThatSeesItsOwnDeviceTakesNumber0) {
  EXPECT_EQ(pick_gpus(Seen{{"a"}, {"b"}, {"c"}}), (Picked{0, 0, 0}));
  EXPECT_EQ(pick_gpus(Seen{{"a", "b"}, {"c", "d"}}), (Picked{0, 0}));
  EXPECT_EQ(pick_gpus(Seen{{"b", "a"}, {"b", "a"}}), (Picked{0, 1}));
}

TEST(PickGpus, ListsThatOverlapAreSharedOutSoThatNobodySharesInVain) {
  EXPECT_EQ(pick_gpus(Seen{{"a", "b"}, {"a"}}), (Picked{1, 0}));
  EXPECT_EQ(pick_gpus(Seen{{"a", "b"}, {"a", "c"}, {"a"}}), (Picked{1, 1, 0}));
  EXPECT_EQ(pick_gpus(Seen{{"a", "b"}, {"b", "c"}, {"a"}}), (Picked{1, 1, 0}));
  EXPECT_EQ(pick_gpus(Seen{{"a"}, {}, {"a"}}), (Picked{0, std::nullopt, 0}));
}

// The driver may be newer than the runtime.
constexpr GpuVersions kGood = [] {
  GpuVersions versions = support::kGoodVersions;
  versions.driver = 13010;
  return versions;
}();

TEST(GpuVersionsOf, ADriverOlderThanTheRuntimeIsSaidWithBothNumbers) {
  EXPECT_EQ(version_fault(kGood), "");
  GpuVersions v = kGood;
  v.driver = 12040;
  EXPECT_EQ(version_fault(v),
            "the NVIDIA driver knows CUDA 12.4, this program needs CUDA 13 (its runtime is 13.0): install a "
            "newer driver, or build with CUDA 12");
  v.driver = 13000, v.runtime_built = v.runtime = 13020;
  EXPECT_EQ(version_fault(v), "") << "releases of one major number go together";
}

TEST(GpuVersionsOf, ALibraryOlderThanTheBuildsOrOfAnotherMajorNumberIsAFault) {
  GpuVersions v = kGood;
  v.nccl = 21805;
  EXPECT_EQ(version_fault(v),
            "NCCL 2.18.5 is loaded, but the program was built with 2.28.9: load the module or set "
            "LD_LIBRARY_PATH that the build had, or build again");
  v.nccl = 22900;
  EXPECT_EQ(version_fault(v), "");
  v.nccl_built = v.nccl = 0;
  EXPECT_EQ(version_fault(v), "") << "built without";
  v.cublas_lt = 140000;
  EXPECT_NE(version_fault(v).find("cuBLASLt 14.0.0 is loaded"), std::string::npos);
  v = kGood, v.runtime = 12080;
  EXPECT_NE(version_fault(v).find("CUDA runtime 12.8 is loaded"), std::string::npos);
}

TEST(GpuVersionsOf, AreSaidAsTheirLibrariesSayThem) {
  GpuVersions v = kGood;
  EXPECT_EQ(versions_text(v), "driver for CUDA 13.1, CUDA runtime 13.0, cuBLASLt 13.0.2, NCCL 2.28.9");
  v.driver = 0, v.cublas_lt = 130100, v.nccl = v.nccl_built = 0;
  EXPECT_EQ(versions_text(v), "no driver, CUDA runtime 13.0, cuBLASLt 13.1.0 (built with 13.0.2), no NCCL");
}

TEST(PlanGpus, OfOneRankTakesTheFirst) {
  SingleCommunicator comm;
  PlayedSystem system({{"NVIDIA H200", "0000:1B:00.0", std::uint64_t{140} << 30, 9, 0},
                       {"NVIDIA H200", "0000:4C:00.0", std::uint64_t{140} << 30, 9, 0}},
                      kGood);
  const GpuPlan plan = plan_gpus(comm, "node07", system, false);
  EXPECT_EQ(plan.device, 0);
  EXPECT_FALSE(plan.shared);
  EXPECT_EQ(plan.lines, std::vector<std::string>{
                            "rank 0 on node07: GPU 0 of 2, NVIDIA H200, PCI 0000:1B:00.0, 140.0 GiB"});
  EXPECT_EQ(plan.warning, "");
}

TEST(PlanGpus, SaysWhyThereIsNone) {
  SingleCommunicator comm;
  GpuVersions v = kGood;
  v.driver = 0;
  PlayedSystem no_driver({}, v);
  GpuPlan plan = plan_gpus(comm, "node07", no_driver, false);
  EXPECT_EQ(plan.device, std::nullopt);
  EXPECT_EQ(plan.why_none, "no NVIDIA driver is installed");
  setenv("CUDA_VISIBLE_DEVICES", "5", 1);
  PlayedSystem hidden({}, kGood);
  plan = plan_gpus(comm, "node07", hidden, false);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(plan.why_none.starts_with("no GPU is visible (CUDA_VISIBLE_DEVICES is \"5\"")) << plan.why_none;
}

TEST(PlanGpus, AVersionFaultEndsIt) {
  SingleCommunicator comm;
  GpuVersions v = kGood;
  v.driver = 12040;
  PlayedSystem system({{"NVIDIA H200", "0000:1B:00.0", 1, 9, 0}}, v);
  EXPECT_THROW(plan_gpus(comm, "node07", system, false), Error);
}

}  // namespace
}  // namespace tandem
