// Runs the tests whose names begin with one of the arguments, or all. Ends with 1 where one failed, with 4
// where there is no GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "comm/gpu_system.hpp"

int main(int argc, char** argv) {
  try {
    const std::vector<tandem::GpuInfo> gpus = tandem::cuda_system()->visible();
    if (gpus.empty()) {
      std::puts("no GPU: this process sees none, or there is no NVIDIA driver");
      return 4;
    }
    std::printf("%s\n", gpus[0].name.c_str());
  } catch (const std::exception& error) {
    std::printf("no GPU: %s\n", error.what());
    return 4;
  }
  return ::testing::run_tests(std::vector<std::string>(argv + 1, argv + argc)) == 0 ? 0 : 1;
}
