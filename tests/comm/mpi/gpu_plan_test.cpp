// Which rank takes which GPU, with devices that are only said to be there. The ranks of this test share a
// node.
#include <gtest/gtest.h>

#include "comm/gpu_system.hpp"
#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"
#include "tests/support/played_gpus.hpp"

namespace tandem {
namespace {

using mpi_test::world;
using support::PlayedSystem;

GpuInfo gpu(int number) {
  return {"NVIDIA H200", cat("0000:0", number, ":00.0"), std::uint64_t{141} << 30, 9, 0};
}

std::vector<GpuInfo> all_gpus(int n) {
  std::vector<GpuInfo> gpus;
  for (int i = 0; i < n; ++i) gpus.push_back(gpu(i));
  return gpus;
}

std::string refusal(PlayedSystem& system, bool may_share = false) {
  try {
    plan_gpus(world(), "node07", system, may_share);
  } catch (const AgreedError& error) {
    return cat("exit ", error.exit_code(), ", rank ", error.rank(), ": ", error.what());
  }
  return "";
}

TEST(GpuPlan, EveryRankTakesItsOwnOfThoseThatAllSee) {
  PlayedSystem system(all_gpus(world().size()));
  const GpuPlan plan = plan_gpus(world(), "node07", system, false);
  EXPECT_EQ(plan.device, world().rank());
  EXPECT_EQ(plan.gpu.bus_id, gpu(world().rank()).bus_id);
  EXPECT_FALSE(plan.shared);
  ASSERT_EQ(static_cast<int>(plan.lines.size()), world().size());
  EXPECT_EQ(plan.lines.back(),
            cat("rank ", world().size() - 1, " on node07: GPU ", world().size() - 1, " of ", world().size(),
                ", NVIDIA H200, PCI ", gpu(world().size() - 1).bus_id, ", 141.0 GiB"));
}

TEST(GpuPlan, BoundRanksTakeTheOneTheySee) {
  PlayedSystem system({gpu(world().rank())});
  const GpuPlan plan = plan_gpus(world(), "node07", system, false);
  EXPECT_EQ(plan.device, 0);
  EXPECT_EQ(plan.gpu.bus_id, gpu(world().rank()).bus_id);
}

TEST(GpuPlan, TwoRanksOnOneDeviceAreRefusedUnlessTheyMayShare) {
  if (world().size() < 2) GTEST_SKIP() << "one rank shares with nobody";
  PlayedSystem system(all_gpus(world().size() - 1));
  const std::string text = refusal(system);
  EXPECT_TRUE(
      text.starts_with(cat("exit 4, rank 0: ranks 0", world().size() == 2 ? "-" : ",", world().size() - 1,
                           " on node07 would compute on one GPU (PCI 0000:00:00.0); "
                           "this rank sees ")))
      << text;
  const GpuPlan plan = plan_gpus(world(), "node07", system, true);
  EXPECT_TRUE(plan.shared);
  EXPECT_EQ(plan.device, world().rank() % (world().size() - 1));
}

TEST(GpuPlan, ARankThatSeesNoneAmongOthersThatDoIsNamed) {
  if (world().size() < 2) GTEST_SKIP() << "one rank has no others";
  const bool last = world().rank() == world().size() - 1;
  PlayedSystem system(last ? std::vector<GpuInfo>{} : all_gpus(world().size()));
  const std::string text = refusal(system);
  EXPECT_TRUE(text.starts_with(cat("exit 4, rank ", world().size() - 1, ": rank ", world().size() - 1, " of ",
                                   world().size(), ": no GPU is visible (CUDA_VISIBLE_DEVICES")))
      << text;
}

TEST(GpuPlan, RanksWithDifferentNcclAreRefused) {
  if (world().size() < 2) GTEST_SKIP() << "one rank differs from nobody";
  PlayedSystem system(all_gpus(world().size()));
  if (world().rank() == 1) system.found.nccl = 22901;
  const std::string text = refusal(system);
  EXPECT_NE(text.find("NCCL 2.28.9; rank 1: "), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL 2.29.1 (built with 2.28.9)"), std::string::npos) << text;
}

TEST(GpuPlan, DriversMayDifferButAreNotTooOldOnAny) {
  PlayedSystem system(all_gpus(world().size()));
  if (world().rank() == world().size() - 1) system.found.driver = 13010;
  EXPECT_EQ(refusal(system), "");
  if (world().rank() == world().size() - 1) system.found.driver = 12080;
  EXPECT_TRUE(refusal(system).starts_with(
      cat("exit 4, rank ", world().size() - 1, ": the NVIDIA driver knows CUDA 12.8")));
}

TEST(GpuPlan, DevicesOfDifferentKindsAreToldNotRefused) {
  std::vector<GpuInfo> gpus = all_gpus(world().size());
  gpus.back().name = "NVIDIA A100";
  PlayedSystem system(gpus);
  const GpuPlan plan = plan_gpus(world(), "node07", system, false);
  EXPECT_EQ(plan.warning.empty(), world().size() == 1) << plan.warning;
}

}  // namespace
}  // namespace tandem
