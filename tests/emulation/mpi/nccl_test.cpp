// Sums over the ranks of numbers in (emulated) device memory, over NCCL and through the host.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "comm/device_reduction.hpp"
#include "comm/gpu_system.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "tests/comm/mpi/world.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

using mpi_test::world;

struct Way {
  const char* name;
  std::function<std::unique_ptr<DeviceReduction>(const CudaContext&)> make;
};
const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"NCCL", [](const CudaContext& ctx) { return nccl_reduction(world(), ctx); }},
      {"host", [](const CudaContext& ctx) { return host_staged_reduction(world(), ctx); }}};
  return all;
}

// What `rank` brings: all 64 bits, so that sums wrap.
std::vector<std::int64_t> brought(int rank, std::size_t n) {
  const RandomStream random(static_cast<std::uint64_t>(rank), "limbs");
  std::vector<std::int64_t> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int64_t>(random.draw(i));
  return values;
}
std::vector<std::int64_t> summed(std::size_t n) {
  std::vector<std::int64_t> sum(n, 0);
  for (int rank = 0; rank < world().size(); ++rank) {
    const std::vector<std::int64_t> values = brought(rank, n);
    for (std::size_t i = 0; i < n; ++i)
      sum[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum[i]) +
                                         static_cast<std::uint64_t>(values[i]));
  }
  return sum;
}

// kind and text of what `work` throws; CommunicationError is marked, for a program ends all ranks for it.
std::string thrown(const std::function<void()>& work) {
  try {
    work();
  } catch (const CommunicationError& error) {
    return cat("end: ", error.what());
  } catch (const Error& error) {
    return cat("exit ", error.exit_code(), ": ", error.what());
  }
  return "";
}

TEST(DeviceSum, IsExactForAnySizesStartedOneAfterAnother) {
  for (const emulation::StreamTime time : {emulation::StreamTime::kLate, emulation::StreamTime::kAtOnce}) {
    emulation::set_stream_time(time);
    for (const Way& way : ways()) {
      SCOPED_TRACE(way.name);
      const CudaContext ctx(world().rank());
      const auto reduction = way.make(ctx);
      for (int round = 0; round < 2; ++round) {
        std::vector<DeviceArray<std::int64_t>> arrays;
        // The last one takes two pieces through the host, many through the fake.
        const std::vector<std::size_t> sizes = {1, 0, 31, 33, 65536, 100'001, 1'100'003};
        for (const std::size_t n : sizes) {
          arrays.emplace_back(ctx, brought(world().rank(), n));
          reduction->start(ctx, arrays.back().span());
        }
        reduction->finish(ctx, "update 1");
        for (std::size_t i = 0; i < sizes.size(); ++i)
          ASSERT_TRUE(arrays[i].host() == summed(sizes[i])) << sizes[i] << " values";
      }
    }
  }
  emulation::set_stream_time(emulation::StreamTime::kLate);
}

TEST(DeviceSum, SeesWhatTheStreamWasGivenBeforeAndIsSeenByWhatComesAfter) {
  constexpr std::size_t kN = 4099;
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const CudaContext ctx(world().rank());
    const auto reduction = way.make(ctx);
    DeviceArray<std::int64_t> first(ctx, kN), second(ctx, kN), source(ctx, brought(world().rank(), kN)),
        beside(ctx, kN), after(ctx, kN);
    // Streams run late: a sum that does not wait for these copies adds up NaN's bytes.
    copy_bytes_on_device(ctx, first.data(), source.data(), kN * 8);
    reduction->start(ctx, first.span());
    copy_bytes_on_device(ctx, second.data(), source.data(), kN * 8);
    reduction->start(ctx, second.span());
    copy_bytes_on_device(ctx, beside.data(), source.data(), kN * 8);  // runs beside
    reduction->finish(ctx, "update 1");
    copy_bytes_on_device(ctx, after.data(), second.data(), kN * 8);
    EXPECT_TRUE(after.host() == summed(kN));
    EXPECT_TRUE(first.host() == summed(kN));
    EXPECT_TRUE(beside.host() == brought(world().rank(), kN));
  }
}

TEST(DeviceSum, NothingStartedIsNothingToWaitFor) {
  for (const Way& way : ways()) {
    const CudaContext ctx(world().rank());
    const auto reduction = way.make(ctx);
    EXPECT_EQ(thrown([&] { reduction->finish(ctx, "update 1"); }), "");
  }
  const CudaContext ctx(world().rank());
  const auto none = no_reduction();
  const DeviceArray<std::int64_t> values(ctx, brought(0, 5));
  none->start(ctx, values.span());
  none->finish(ctx, "update 1");
  EXPECT_TRUE(values.host() == brought(0, 5));
}

TEST(DeviceSum, SaysWhatCarriesIt) {
  const CudaContext ctx(world().rank());
  EXPECT_EQ(nccl_reduction(world(), ctx)->name(), cat("NCCL ", NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH));
  EXPECT_EQ(host_staged_reduction(world(), ctx)->name(), "MPI, through the host's memory");
}

// What the exact reduction's checksums are for.
TEST(DeviceSum, ALostContributionOfTheFakeChangesTheSum) {
  const CudaContext ctx(world().rank());
  const auto reduction = nccl_reduction(world(), ctx);
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 7));
  if (world().rank() == 0) emulation::fail_next("nccl lost contribution", 1);
  reduction->start(ctx, values.span());
  reduction->finish(ctx, "update 1");
  EXPECT_FALSE(values.host() == summed(7));
}

// ---- failures: planted on every rank alike, so that no rank waits for another ----

TEST(NcclFailure, EachCallThatFailsEndsTheJobWithOneLine) {
  const CudaContext ctx(world().rank());
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 512));
  const auto whole = [&] {
    const auto reduction = nccl_reduction(world(), ctx);
    reduction->start(ctx, values.span());
    reduction->finish(ctx, "update 412");
  };
  struct Case {
    const char* call;
    int code, nth;
    const char* text;
  };
  constexpr const char* kInternal = "internal error - please report this issue to the NCCL developers";
  for (const Case& c : std::vector<Case>{
           {"ncclGetVersion", ncclInternalError, 1, "exit 4: nccl: INTERNAL (ncclGetVersion)"},
           {"ncclCommInitRankConfig", ncclInternalError, 1,
            "end: nccl: INTERNAL (ncclCommInitRankConfig) | joining the ranks"},
           {"ncclCommGetAsyncError", ncclInternalError, 1,
            "end: nccl: INTERNAL (ncclCommGetAsyncError) | joining the ranks"},
           {"ncclAllReduce", ncclInternalError, 1, "end: nccl: INTERNAL (ncclAllReduce) | all_reduce(512)"},
           {"cudaEventRecord", cudaErrorLaunchFailure, 1, "end: cudaEventRecord: "},
           {"cudaStreamWaitEvent", cudaErrorLaunchFailure, 1, "end: cudaStreamWaitEvent: "},
           {"cudaStreamWaitEvent", cudaErrorLaunchFailure, 2, "end: cudaStreamWaitEvent: "},
           {"cudaEventQuery", cudaErrorIllegalAddress, 1, "end: cudaEventQuery: "},
           {"cudaDeviceGetStreamPriorityRange", cudaErrorUnknown, 1,
            "exit 4: cudaDeviceGetStreamPriorityRange: "},
           {"cudaStreamCreateWithPriority", cudaErrorMemoryAllocation, 1,
            "exit 4: cudaStreamCreateWithPriority: "},
           {"cudaEventCreateWithFlags", cudaErrorMemoryAllocation, 2, "exit 4: cudaEventCreateWithFlags: "},
           {"cudaDeviceGetPCIBusId", cudaErrorInvalidDevice, 1, "exit 4: cudaDeviceGetPCIBusId: "}}) {
    emulation::fail_next(c.call, c.code, c.nth);
    std::string want = c.text;
    if (const auto at = want.find("INTERNAL"); at != want.npos) want.replace(at, 8, kInternal);
    const std::string text = thrown(whole);
    EXPECT_TRUE(text.starts_with(want)) << c.call << ": " << text;
    emulation::forget_failures();
    world().barrier();
  }
  if (world().rank() == 0) emulation::fail_next("ncclGetUniqueId", ncclSystemError);
  EXPECT_TRUE(thrown(whole).starts_with("exit 4: nccl: unhandled system error")) << "rank 0's alone";
  EXPECT_EQ(thrown(whole), "") << "afterwards all works";
}

TEST(NcclFailure, AnErrorMetOnTheWayEndsTheJobAndTheObject) {
  const CudaContext ctx(world().rank());
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 512));
  const auto reduction = nccl_reduction(world(), ctx);
  emulation::fail_next("nccl async error", ncclRemoteError, 2);
  EXPECT_EQ(thrown([&] {
              reduction->start(ctx, values.span());
              reduction->finish(ctx, "update 412");
            }),
            "end: nccl: remote process exited or there was a network error | all_reduce(512) update 412");
  EXPECT_EQ(thrown([&] { reduction->start(ctx, values.span()); }),
            "end: nccl: used after it had failed | all_reduce(512)");
  emulation::forget_failures();
  world().barrier();
}

TEST(NcclFailure, ARankThatComesTooLateIsNotWaitedForForEver) {
  if (world().size() == 1) GTEST_SKIP() << "one rank waits for nobody";
  const CudaContext ctx(world().rank());
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 64));
  {
    const auto reduction = nccl_reduction(world(), ctx, {.start_s = 60, .sum_s = 0.3});
    if (world().rank() == 0) {
      reduction->start(ctx, values.span());
      EXPECT_EQ(thrown([&] { reduction->finish(ctx, "update 7"); }),
                "end: nccl: no end of the sum after 0.3 s | all_reduce(64) update 7");
      ctx.synchronize();  // what the sum held is let go
    }
    world().barrier();
  }
}

TEST(NcclFailure, RanksThatNeverJoinAreNotWaitedForForEver) {
  if (world().size() == 1) GTEST_SKIP() << "one rank waits for nobody";
  const CudaContext ctx(world().rank());
  if (world().rank() != 0) emulation::fail_next("ncclCommInitRankConfig", ncclSystemError);
  const std::string text = thrown([&] { nccl_reduction(world(), ctx, {.start_s = 0.3, .sum_s = 1}); });
  if (world().rank() == 0) {
    EXPECT_EQ(text, "end: nccl: no end of ncclCommInitRankConfig after 0.3 s | joining the ranks");
  } else {
    EXPECT_TRUE(text.starts_with("end: nccl: unhandled system error")) << text;
  }
  world().barrier();
}

TEST(NcclFailure, DifferentVersionsAndASharedDeviceAreRefusedOnEveryRank) {
  if (world().size() == 1) GTEST_SKIP() << "one rank differs from nobody";
  const CudaContext ctx(world().rank());
  if (world().rank() == 1) setenv("TANDEM_EMULATED_NCCL", "21805", 1);
  EXPECT_TRUE(thrown([&] { nccl_reduction(world(), ctx); }).starts_with("exit 4: NCCL's version "));
  unsetenv("TANDEM_EMULATED_NCCL");
  setenv("TANDEM_EMULATED_BUS", "0000:1B:00.0", 1);
  EXPECT_EQ(
      thrown([&] { nccl_reduction(world(), ctx); }),
      cat("exit 4: ", world().size(),
          " ranks compute on the GPU at PCI 0000:1B:00.0, over which NCCL cannot sum: give each rank its "
          "own, or let the sums go over MPI (gpu = shared)"));
  const auto staged = host_staged_reduction(world(), ctx);
  unsetenv("TANDEM_EMULATED_BUS");
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 64));
  staged->start(ctx, values.span());
  staged->finish(ctx, "update 1");
  EXPECT_TRUE(values.host() == summed(64)) << "ranks that share a device can sum through the host";
}

TEST(HostStagedFailure, EachCallThatFailsEndsTheJobWithOneLine) {
  const CudaContext ctx(world().rank());
  const DeviceArray<std::int64_t> values(ctx, brought(world().rank(), 512));
  const auto whole = [&] {
    const auto reduction = host_staged_reduction(world(), ctx);
    reduction->start(ctx, values.span());
    reduction->finish(ctx, "update 412");
  };
  for (const auto& [call, nth, text] : {std::tuple{"cudaMallocHost", 1, "exit 4: cudaMallocHost: "},
                                        {"cudaEventCreateWithFlags", 3, "exit 4: cudaEventCreateWithFlags: "},
                                        {"cudaMemcpyAsync", 1, "end: cudaMemcpyAsync to the host: "},
                                        {"cudaMemcpyAsync", 2, "end: cudaMemcpyAsync to the device: "},
                                        {"cudaEventSynchronize", 1, "end: cudaEventSynchronize: "}}) {
    emulation::fail_next(call, cudaErrorMemoryAllocation, nth);
    const std::string got = thrown(whole);
    EXPECT_TRUE(got.starts_with(text)) << got;
    EXPECT_TRUE(!got.starts_with("end: ") || got.ends_with(" | all_reduce(512) update 412")) << got;
    emulation::forget_failures();
    world().barrier();
  }
  EXPECT_EQ(thrown(whole), "");
}

// ---- which rank takes which device ----

TEST(CudaSystem, SaysWhatTheDevicesAre) {
  const auto system = cuda_system();
  const std::vector<GpuInfo> gpus = system->visible();
  ASSERT_EQ(static_cast<int>(gpus.size()), emulation::facts().devices);
  EXPECT_EQ(gpus[1].bus_id, "0000:02:00.0");
  EXPECT_EQ(gpus[1].name, "Emulated GPU");
  EXPECT_EQ(gpus[1].memory_bytes, emulation::facts().memory_bytes);
  EXPECT_EQ(gpus[1].major, emulation::facts().major);
  EXPECT_GT(system->free_bytes(1), 0u);
  const GpuVersions v = system->versions();
  EXPECT_EQ(version_fault(v), "");
  EXPECT_EQ(v.nccl_built, NCCL_VERSION_CODE);
  EXPECT_EQ(v.runtime, v.runtime_built);
  const GpuPlan plan = plan_gpus(world(), "node", *system, false);
  EXPECT_EQ(plan.device, world().rank());
}

TEST(CudaSystem, NoDriverAndNoDeviceAreNoErrorsAndOthersAre) {
  const auto system = cuda_system();
  const emulation::Facts before = emulation::facts();
  emulation::facts().driver_version = 0;
  EXPECT_TRUE(system->visible().empty());
  EXPECT_EQ(plan_gpus(world(), "node", *system, false).why_none, "no NVIDIA driver is installed");
  emulation::facts() = before;
  emulation::facts().devices = 0;
  EXPECT_TRUE(system->visible().empty());
  emulation::facts() = before;
  for (const auto& [call, code] : {std::pair{"cudaDriverGetVersion", cudaErrorUnknown},
                                   {"cudaRuntimeGetVersion", cudaErrorUnknown},
                                   {"cudaGetDeviceCount", cudaErrorSystemDriverMismatch},
                                   {"cudaGetDeviceProperties", cudaErrorUnknown},
                                   {"cudaDeviceGetPCIBusId", cudaErrorUnknown}}) {
    emulation::fail_next(call, code);
    EXPECT_TRUE(
        thrown([&] { plan_gpus(world(), "node", *system, false); }).starts_with(cat("exit 4: ", call, ": ")))
        << call;
    emulation::forget_failures();
  }
  emulation::fail_next("cudaMemGetInfo", cudaErrorUnknown);
  EXPECT_TRUE(thrown([&] { system->free_bytes(0); }).starts_with("exit 4: cudaMemGetInfo: "));
}

}  // namespace
}  // namespace tandem::testing
