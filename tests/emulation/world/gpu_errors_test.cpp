// What a run on GPUs says, in one line, where it cannot be.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/world/runs.hpp"

namespace tandem::world_test {
namespace {

class GpuErrors : public Runs {
 protected:
  GpuErrors() : Runs(64) {}

  Ended run(int ranks, const std::string& options, const std::string& environment) const {
    return train(ranks, folder_ / "out", options + " --train.updates 4 --eval.every 4", environment + " ");
  }

  static void expect_ends(const Ended& ended, int code, const std::string& text) {
    EXPECT_EQ(ended.code, code) << ended.text;
    std::istringstream lines(ended.text);
    std::vector<std::string> errors;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("tandem: ") || line.starts_with("[rank ")) errors.push_back(line);
    ASSERT_EQ(errors.size(), 1u) << ended.text;
    EXPECT_NE(errors[0].find(text), std::string::npos) << ended.text;
  }
};

TEST_F(GpuErrors, AProgramBuiltWithoutCudaSaysSo) {
  const fs::path log = folder_ / "log";
  const int status = std::system(
      cat(command(1, folder_ / "out", "--gpu on", TANDEM_CPU_PROGRAM), " > ", log.string(), " 2>&1").c_str());
  expect_ends({WEXITSTATUS(status), support::read_text(log)}, 2,
              "gpu = on: this program was built without CUDA");
}

TEST_F(GpuErrors, NoDevice) {
  expect_ends(run(2, "--gpu on", "TANDEM_EMULATED_GPUS=0"), 4,
              "gpu = on: no GPU is visible (CUDA_VISIBLE_DEVICES is not set");
  const Ended automatic = run(1, "", "TANDEM_EMULATED_GPUS=0");
  EXPECT_EQ(automatic.code, 0) << automatic.text;
  EXPECT_NE(automatic.text.find("computing on the CPU: "), std::string::npos) << automatic.text;
}

TEST_F(GpuErrors, FormatsThatOnlyGpusHave) {
  expect_ends(run(1, "--precision bf16 --gpu off", "TANDEM_EMULATED_GPUS=1"), 2,
              "precision = bf16: is computed on GPUs only");
}

TEST_F(GpuErrors, TwoRanksOnOneDevice) {
  expect_ends(run(2, "", "TANDEM_EMULATED_GPUS=1"), 4,
              "would compute on one GPU (PCI 0000:01:00.0); this rank sees 1 GPU, its node has 2 ranks: "
              "start as many "
              "ranks as GPUs, give each its own (srun --gpus-per-task=1), or let them share (gpu = shared); "
              "or compute "
              "on CPUs (gpu = off)");
}

TEST_F(GpuErrors, HeadsThatAreNotComputedThere) {
  model_ = support::make_tiny_model(folder_, "llama");
  expect_ends(run(2, "--gpu on", "TANDEM_EMULATED_GPUS=2"), 2,
              "gpu = on: the model's heads have 20 dimensions, GPUs compute those of 64 and 128");
  const Ended automatic = run(2, "", "TANDEM_EMULATED_GPUS=2");
  EXPECT_EQ(automatic.code, 0) << automatic.text;
  EXPECT_NE(automatic.text.find("computing on the CPU: the model's heads have 20"), std::string::npos)
      << automatic.text;
}

TEST_F(GpuErrors, TooLittleMemoryIsToldBeforeTheRun) {
  expect_ends(run(1, "--gpu on", "TANDEM_EMULATED_GPUS=1 TANDEM_EMULATED_MEMORY=513"), 4,
              "the GPU's memory is too small: ");
}

TEST_F(GpuErrors, MemoryThatIsRefusedIsToldWithItsSize) {
  // cudaErrorMemoryAllocation, of one of two ranks.
  expect_ends(run(2, "--gpu on", "TANDEM_EMULATED_GPUS=2 TANDEM_EMULATED_FAIL=cudaMalloc:2:5"), 4,
              "out of memory on GPU");
}

TEST_F(GpuErrors, ADriverThatIsTooOld) {
  expect_ends(run(2, "", "TANDEM_EMULATED_GPUS=2 TANDEM_EMULATED_DRIVER=12040"), 4,
              "the NVIDIA driver knows CUDA 12.4, this program needs CUDA 13");
}

// A node without its GPU must not go on with a run that was begun on one.
TEST_F(GpuErrors, ARunIsNotResumedOnAnotherDeviceUnseen) {
  const std::string saves = "--checkpoint.every 1 --checkpoint.keep 9";
  ASSERT_EQ(run(1, saves, "TANDEM_EMULATED_GPUS=1").code, 0);
  const std::string again = cat(saves, " --resume ", (folder_ / "out/checkpoints/2").string());
  expect_ends(run(1, again, "TANDEM_EMULATED_GPUS=0"), 3,
              "was saved with another device = Emulated GPU there, cpu here: give gpu = on or gpu = off");
  const Ended wanted = run(1, again + " --gpu off", "TANDEM_EMULATED_GPUS=0");
  EXPECT_EQ(wanted.code, 0) << wanted.text;
  EXPECT_NE(wanted.text.find("warning: resumed with another device"), std::string::npos) << wanted.text;
}

TEST_F(GpuErrors, AKernelThatFailsEndsTheRun) {
  // cudaErrorIllegalAddress out of the 200th launch.
  expect_ends(run(2, "--gpu on", "TANDEM_EMULATED_GPUS=2 TANDEM_EMULATED_FAIL=cudaLaunchKernelExC:700:200"),
              4, "illegal memory access");
}

}  // namespace
}  // namespace tandem::world_test
