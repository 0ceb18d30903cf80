// Every check of a CUDA call in kernels/cuda/context.cu and launch.hpp is fired, and says one line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/port.hpp"
#include "kernels/cuda_context.hpp"
#include "src/base/error.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

using namespace cuda;

struct Sixty {
  std::byte bytes[60 * 1024];
};
TANDEM_KERNEL touch_shared() { block_shared<Sixty>().bytes[thread_x()] = std::byte{1}; }
TANDEM_KERNEL do_nothing() {}

// Comes by every call. What has been called until the context and the arena end is left in `called`.
void use_all(std::map<std::string, std::int64_t>& called) {
  emulation::clear_calls();
  CudaContext ctx(0);
  ctx.reserve(1000);
  ctx.reserve(5000);
  DeviceArena arena(ctx, std::size_t{6} << 20, "a test");
  const std::span<std::byte> all = arena.take<std::byte>(6 << 20);
  std::vector<std::byte> host(std::size_t{3} << 20);
  copy_bytes_to_device(ctx, all.data(), host.data(), host.size());
  copy_bytes_on_device(ctx, all.data() + host.size(), all.data(), host.size());
  zero_bytes(ctx, all.data(), 1000);
  launch(ctx, "do_nothing", do_nothing, {2}, 32, 0);
  launch(ctx, "touch_shared", touch_shared, {2}, 32, sizeof(Sixty));
  copy_bytes_to_host(ctx, host.data(), all.data(), host.size());
  ctx.synchronize();
  called = emulation::calls();
}

// The line of the error that `run` throws; "" and a failure where there is none, or it is of another kind.
std::string line_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an Error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::string text_of(const std::string& file) {
  std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/" + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The last argument of each check(cuda...(...), "...").
std::set<std::string> checks_in(const std::string& file) {
  std::set<std::string> found;
  const std::string text = text_of(file);
  for (std::size_t at = text.find("check(cuda"); at != std::string::npos;
       at = text.find("check(cuda", at + 1)) {
    const std::size_t end = text.find(");", at);
    const std::string call = text.substr(at, end - at);
    const std::size_t close = call.rfind('"');
    if (close == std::string::npos) continue;  // named by the kernel
    const std::size_t open = call.rfind('"', close - 1);
    found.insert(call.substr(open + 1, close - open - 1));
  }
  return found;
}

TEST(CudaErrors, EveryCheckFiresAndSaysItsLine) {
  std::map<std::string, std::int64_t> called;
  use_all(called);
  std::set<std::string> said;
  for (const auto& [function, times] : called) {
    for (int nth = 1; nth <= times; ++nth) {
      emulation::fail_next(function, cudaErrorECCUncorrectable, nth);
      std::map<std::string, std::int64_t> unused;
      const std::string line = line_of([&] { use_all(unused); });
      const std::string words = ": uncorrectable ECC error encountered (cudaErrorECCUncorrectable, 214)";
      EXPECT_TRUE(line.ends_with(words)) << function << ", call " << nth << ": " << line;
      if (line.ends_with(words)) said.insert(line.substr(0, line.size() - words.size()));
      emulation::forget_failures();
    }
  }
  EXPECT_TRUE(said.contains("do_nothing")) << "a kernel's launch";
  EXPECT_TRUE(said.contains("touch_shared")) << "a kernel's shared memory";

  emulation::facts().memory_bytes = 1000;
  emulation::fail_next("cudaMemGetInfo", cudaErrorECCUncorrectable);
  const std::string line = line_of([] {
    const CudaContext ctx(0);
    DeviceArena(ctx, 2000, "a test");
  });
  said.insert(line.substr(0, line.find(':')));
  emulation::facts().memory_bytes = emulation::Facts{1}.memory_bytes;

  const std::set<std::string> checks = checks_in("kernels/cuda/context.cu");
  EXPECT_GT(checks.size(), 12u);
  for (const std::string& check : checks) EXPECT_TRUE(said.contains(check)) << "never fired: " << check;
}

// Calls whose result nobody looks at: those of destructors, and those that only ask about errors.
TEST(CudaErrors, EveryCallOfTheContextIsChecked) {
  std::map<std::string, std::int64_t> called;
  use_all(called);
  for (const char* also :
       {"cudaGetLastError", "cudaMemGetInfo", "cudaEventDestroy", "cudaFreeHost", "cudaStreamDestroy"})
    called[also] = 1;
  for (const char* file : {"kernels/cuda/context.cu", "kernels/cuda/launch.hpp"}) {
    const std::string text = text_of(file);
    const std::regex call(R"(\b(cuda[A-Z]\w*)\()");
    int n_calls = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it, ++n_calls)
      EXPECT_TRUE(called.contains((*it)[1])) << file << " calls " << (*it)[1] << ", which no test makes fail";
    EXPECT_GT(n_calls, 0) << file;
  }
}

// ---- the machine is not as needed ----

struct FactsRestored {
  const emulation::Facts before = emulation::facts();
  ~FactsRestored() { emulation::facts() = before; }
};

std::string line_of_context(int device) {
  return line_of([&] { const CudaContext ctx(device); });
}

TEST(CudaErrors, NoDriver) {
  const FactsRestored restored;
  emulation::facts().driver_version = 0;
  EXPECT_EQ(line_of_context(0), "no NVIDIA driver here: one for CUDA 13.0 or newer is needed");
}

TEST(CudaErrors, TooOldADriver) {
  const FactsRestored restored;
  emulation::facts().driver_version = 12040;
  EXPECT_EQ(
      line_of_context(0),
      "the NVIDIA driver is too old: it is for CUDA 12.4, CUDA 13.0 or newer is needed; install a newer "
      "one, or build with an older CUDA toolkit");
}

TEST(CudaErrors, ADriverThatSaysItselfThatItIsTooOld) {
  emulation::fail_next("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  EXPECT_EQ(line_of_context(0),
            "the number of GPUs: CUDA driver version is insufficient for CUDA runtime version "
            "(cudaErrorInsufficientDriver, 35)");
}

TEST(CudaErrors, NoDevice) {
  const FactsRestored restored;
  emulation::facts().devices = 0;
  EXPECT_EQ(line_of_context(0), "this process sees no GPU");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(line_of_context(0), "this process sees no GPU (CUDA_VISIBLE_DEVICES=)");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(CudaErrors, NoSuchDevice) {
  const FactsRestored restored;
  EXPECT_EQ(line_of_context(1), "no GPU 1: this process sees 1 GPU");
  EXPECT_EQ(line_of_context(-1), "no GPU -1: this process sees 1 GPU");
  emulation::facts().devices = 2;
  setenv("CUDA_VISIBLE_DEVICES", "3,5", 1);
  EXPECT_EQ(line_of_context(2), "no GPU 2: this process sees 2 GPUs (CUDA_VISIBLE_DEVICES=3,5)");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(CudaErrors, TooOldADevice) {
  const FactsRestored restored;
  emulation::facts().major = 7;
  emulation::facts().minor = 5;
  EXPECT_EQ(line_of_context(0), "GPU 0 (Emulated GPU) has compute capability 7.5; 8.0 or newer is needed");
}

TEST(CudaErrors, OutOfMemoryNamesWhatSizeAndFree) {
  const FactsRestored restored;
  emulation::facts().memory_bytes = std::size_t{100} << 20;
  CudaContext ctx(0);
  const DeviceArena first(ctx, std::size_t{60} << 20, "base weights");
  EXPECT_EQ(line_of([&] { const DeviceArena second(ctx, std::size_t{50} << 20, "activations"); }),
            "out of memory on GPU 0: 50 MiB for activations, 40 of 100 MiB are free");
  EXPECT_EQ(line_of([&] { ctx.reserve(std::size_t{50} << 20); }),
            "out of memory on GPU 0: 50 MiB for scratch, 40 of 100 MiB are free");
  const DeviceArena second(ctx, std::size_t{40} << 20, "activations");
}

TEST(CudaErrors, MoreSharedMemoryThanTheDeviceHas) {
  const FactsRestored restored;
  emulation::facts().shared_bytes = 50 * 1024;
  const CudaContext ctx(0);
  EXPECT_EQ(line_of([&] { launch(ctx, "touch_shared", touch_shared, {1}, 32, sizeof(Sixty)); }),
            "touch_shared needs 60 KiB of shared memory a block; this GPU has 50");
}

TEST(CudaErrors, AGridThatCannotBeStartedIsOurOwnError) {
  const CudaContext ctx(0);
  for (const auto& [grid, threads] : std::vector<std::pair<Grid, int>>{
           {{1}, 31}, {{1}, 0}, {{1}, 1056}, {{std::int64_t{1} << 31}, 32}, {{1, 65536}, 32}, {{-1}, 32}}) {
    try {
      launch(ctx, "do_nothing", do_nothing, grid, threads, 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
  emulation::clear_calls();
  launch(ctx, "do_nothing", do_nothing, {0}, 32, 0);
  launch(ctx, "do_nothing", do_nothing, {1, 0}, 32, 0);
  EXPECT_EQ(emulation::calls().count("cudaLaunchKernelExC"), 0u) << "an empty grid is not started";
}

TEST(CudaErrors, ScratchThatWasNotReservedIsOurOwnError) {
  CudaContext ctx(0);
  ctx.reserve(100);
  EXPECT_NE(ctx.scratch(100), nullptr);
  try {
    ctx.scratch(101);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_STREQ(error.what(), "scratch of 101 bytes asked for, 100 reserved");
  }
}

TEST(CudaErrors, AnErrorIsForgottenOnceItHasBeenSaid) {
  emulation::fail_next("cudaSetDevice", cudaErrorDevicesUnavailable);
  line_of_context(0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  const CudaContext ctx(0);
}

}  // namespace
}  // namespace tandem::testing
