// What `tandem doctor` says of GPUs, on machines that are only said to be so.
#include "src/doctor/gpus.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

#include "tests/support/played_gpus.hpp"

namespace tandem {
namespace {

using support::PlayedSystem;

std::pair<int, std::string> doctor(GpuSystem* system) {
  SingleCommunicator comm;
  std::ostringstream out;
  Report report(comm, "node07", out);
  report_gpus(report, comm, "node07", system, false);
  return {report.exit_code(), out.str()};
}

TEST(DoctorGpus, SaysLibrariesDeviceAndMemory) {
  PlayedSystem system;
  const auto [code, text] = doctor(&system);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text,
            "ok    CUDA        driver for CUDA 13.0, CUDA runtime 13.0, cuBLASLt 13.0.2, NCCL 2.28.9\n"
            "ok    GPU         GPU 0 of 1, NVIDIA H200, PCI 0000:1B:00.0, 140.0 GiB, 139.00 GiB free\n"
            "ok    NCCL        one rank: nothing to sum\n");
}

TEST(DoctorGpus, OfAProgramBuiltWithoutCudaIsOneLine) {
  EXPECT_EQ(doctor(nullptr),
            std::pair(0, std::string("ok    GPU         not built in: this build computes on CPUs\n")));
}

// Known fault R37.
TEST(DoctorGpus, ADriverTooOldFailsWithBothNumbers) {
  PlayedSystem system;
  system.found.driver = 12040;
  const auto [code, text] = doctor(&system);
  EXPECT_EQ(code, 4);
  EXPECT_TRUE(
      text.starts_with("FAIL  CUDA        the NVIDIA driver knows CUDA 12.4, this program needs CUDA 13 (its "
                       "runtime is 13.0)"))
      << text;
  EXPECT_NE(text.find("\nFAIL  GPU "), std::string::npos) << text;
}

TEST(DoctorGpus, NoDriverOrNoDeviceIsANoteForRunsComputeOnCpus) {
  PlayedSystem system;
  system.found.driver = 0;
  system.gpus.clear();
  const auto [code, text] = doctor(&system);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text,
            "ok    CUDA        no driver, CUDA runtime 13.0, cuBLASLt 13.0.2, NCCL 2.28.9\n"
            "note  GPU         no NVIDIA driver is installed: runs compute on CPUs\n");
}

TEST(DoctorGpus, ADeviceThatIsTooOldOrInUseOrBrokenIsSaid) {
  PlayedSystem system;
  system.gpus[0].major = 7, system.gpus[0].minor = 5;
  EXPECT_EQ(doctor(&system).first, 4);
  EXPECT_NE(doctor(&system).second.find(": compute capability 7.5; 8.0 or newer is needed"),
            std::string::npos);
  system = {};
  system.free = std::uint64_t{70} << 30;
  EXPECT_EQ(doctor(&system).first, 0);
  EXPECT_NE(
      doctor(&system).second.find("\nnote  GPU         GPU 0 of 1, NVIDIA H200, PCI 0000:1B:00.0, 140.0 "
                                  "GiB, 70.00 GiB free: another process uses it"),
      std::string::npos)
      << doctor(&system).second;
  system.trouble = "cudaDriverGetVersion: unknown error";
  EXPECT_EQ(doctor(&system).first, 4);
  EXPECT_TRUE(doctor(&system).second.starts_with("FAIL  CUDA        cudaDriverGetVersion: unknown error\n"));
}

}  // namespace
}  // namespace tandem
