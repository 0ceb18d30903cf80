// The emulation itself: each fault that it is there for is caught, and the code without the fault passes in
// all three orders.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/port.hpp"
#include "kernels/cuda/ptx.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

using namespace cuda;

constexpr int kThreads = 128;

// In how many of the three orders the check holds.
int orders_passed(const std::function<bool()>& check) {
  int passed = 0;
  for (const emulation::Order order : emulation::kOrders) {
    emulation::set_order(order);
    passed += check();
  }
  emulation::set_order({});
  return passed;
}

std::vector<float> counting(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

bool all_nan(const std::vector<float>& values) {
  for (const float value : values)
    if (!std::isnan(value)) return false;
  return true;
}

struct Line {
  float at[kThreads];
};

// ---- barriers ----

TANDEM_KERNEL reverse_block(float* y, const float* x, bool with_barrier) {
  Line& line = block_shared<Line>();
  line.at[thread_x()] = x[thread_x()];
  if (with_barrier) barrier();
  y[thread_x()] = line.at[kThreads - 1 - thread_x()];
}

bool reverses(bool with_barrier) {
  const CudaContext ctx(0);
  const DeviceArray<float> x(ctx, counting(kThreads)), y(ctx, kThreads);
  launch(ctx, "reverse", reverse_block, {1}, kThreads, sizeof(Line), y.data(), x.data(), with_barrier);
  const std::vector<float> got = y.host();
  for (int i = 0; i < kThreads; ++i)
    if (got[static_cast<std::size_t>(i)] != static_cast<float>(kThreads - 1 - i)) return false;
  return true;
}

TEST(Emulation, SeesARemovedBarrierInEveryOrder) {
  EXPECT_EQ(orders_passed([] { return reverses(true); }), 3);
  EXPECT_EQ(orders_passed([] { return reverses(false); }), 0);
}

// A sum of a block's threads, with and without the barrier that lets shared memory be written again.
TANDEM_KERNEL two_sums(float* y, const float* x, bool with_barrier) {
  Line& line = block_shared<Line>();
  for (int round = 0; round < 2; ++round) {
    line.at[thread_x()] = x[thread_x()] + static_cast<float>(round);
    barrier();
    float sum = 0.0f;
    for (const float value : line.at) sum += value;
    y[round * kThreads + thread_x()] = sum;
    if (with_barrier) barrier();
  }
}

TEST(Emulation, SeesARemovedBarrierBeforeSharedMemoryIsWrittenAgain) {
  const auto sums = [](bool with_barrier) {
    const CudaContext ctx(0);
    const DeviceArray<float> x(ctx, counting(kThreads)), y(ctx, 2 * kThreads);
    launch(ctx, "two_sums", two_sums, {1}, kThreads, sizeof(Line), y.data(), x.data(), with_barrier);
    const float sum = kThreads * (kThreads - 1) / 2.0f;
    for (const float got : y.host())
      if (got != sum && got != sum + kThreads) return false;
    return true;
  };
  EXPECT_EQ(orders_passed([&] { return sums(true); }), 3);
  EXPECT_LT(orders_passed([&] { return sums(false); }), 3);
}

TANDEM_KERNEL divergent_barrier(int from) {
  if (thread_x() >= from) barrier();
}

TANDEM_KERNEL barrier_against_shuffle(float* y) {
  if (thread_x() < 32)
    barrier();
  else
    y[thread_x()] = warp_sum(1.0f);
  barrier();
}

TANDEM_KERNEL shuffle_of_some(float* y) {
  if (lane() != 5) y[thread_x()] = warp_sum(1.0f);
}

TANDEM_KERNEL different_shuffles(float* y) {
  y[thread_x()] = lane() % 2 == 0 ? shuffle_xor(1.0f, 1) : shuffle(1.0f, 0);
}

void run_and_wait(const CudaContext& ctx, void (*kernel)(float*), float* y) {
  launch(ctx, "faulty", kernel, {1}, kThreads, 0, y);
  ctx.synchronize();
}

TEST(EmulationDeathTest, ADivergentBarrierOrShuffleEndsWithALine) {
  for (const emulation::Order order : emulation::kOrders) {
    emulation::set_order(order);
    const CudaContext ctx(0);
    const DeviceArray<float> y(ctx, kThreads);
    for (const int from : {1, 64, kThreads - 1})
      EXPECT_DEATH(
          {
            launch(ctx, "faulty", divergent_barrier, {1}, kThreads, 0, from);
            ctx.synchronize();
          },
          "emulated CUDA: kernel faulty, block .0, 0, 0., thread [0-9]+ .*barrier");
    EXPECT_DEATH(run_and_wait(ctx, barrier_against_shuffle, y.data()),
                 "emulated CUDA: kernel faulty.*(barrier|shuffle)");
    EXPECT_DEATH(run_and_wait(ctx, shuffle_of_some, y.data()),
                 "emulated CUDA: kernel faulty.*lanes of its warp");
    EXPECT_DEATH(run_and_wait(ctx, different_shuffles, y.data()),
                 "is at shuffle.*another lane of its warp at shuffle");
    launch(ctx, "whole", divergent_barrier, {3}, kThreads, 0, 0);
    ctx.synchronize();
  }
  emulation::set_order({});
}

// ---- memory ----

TANDEM_KERNEL write_at(float* y, std::int64_t index) {
  if (thread_x() == 0) y[index] = 1.0f;
}

TANDEM_KERNEL copy_elements(float* y, const float* x, std::int64_t shift) {
  y[thread_x()] = x[thread_x() + shift];
}

void write_and_wait(const CudaContext& ctx, float* y, std::int64_t index) {
  launch(ctx, "write_at", write_at, {1}, 32, 0, y, index);
  ctx.synchronize();
}

TEST(EmulationDeathTest, AWriteOutsideAnAllocationEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> before(ctx, 100), y(ctx, 100), after(ctx, 100);
  EXPECT_DEATH(write_and_wait(ctx, y.data(), 100),
               "kernel write_at wrote past the end of an allocation of 400 bytes");
  EXPECT_DEATH(write_and_wait(ctx, y.data(), -1), "kernel write_at wrote before an allocation of 400 bytes");
  EXPECT_DEATH(write_and_wait(ctx, y.data(), 5000),
               "thread 0 accesses device memory 19600 bytes past the end of an allocation of 400 bytes");
  EXPECT_DEATH(write_and_wait(ctx, y.data(), -5000), "accesses device memory");
  EXPECT_DEATH(write_and_wait(ctx, nullptr, 0), "thread 0 accesses memory that is not mapped");
  write_and_wait(ctx, y.data(), 99);
  EXPECT_EQ(y.host()[99], 1.0f);
}

TEST(EmulationDeathTest, AnAccessToFreedMemoryEndsWithALine) {
  const CudaContext ctx(0);
  float* freed = nullptr;
  {
    const DeviceArray<float> y(ctx, 100);
    freed = y.data();
  }
  EXPECT_DEATH(write_and_wait(ctx, freed, 0), "thread 0 accesses device memory");
  EXPECT_DEATH(zero_bytes(ctx, freed, 4), "cudaMemsetAsync is given device memory that is not allocated");
}

TEST(Emulation, WhatNobodyWroteIsNaN) {
  const CudaContext ctx(0);
  const DeviceArray<float> x(ctx, counting(32)), y(ctx, 32), unset(ctx, 32);
  launch(ctx, "copy", copy_elements, {1}, 32, 0, y.data(), unset.data(), std::int64_t{0});
  EXPECT_TRUE(all_nan(y.host())) << "an element that was never written";
  launch(ctx, "copy", copy_elements, {1}, 32, 0, y.data(), x.data(), std::int64_t{32});
  EXPECT_TRUE(all_nan(y.host())) << "elements past the end";
  launch(ctx, "copy", copy_elements, {1}, 32, 0, y.data(), x.data(), std::int64_t{0});
  EXPECT_EQ(y.host(), counting(32));
}

TANDEM_KERNEL read_shared(float* y, bool write_first) {
  Line& line = block_shared<Line>();
  if (write_first) line.at[thread_x()] = 1.0f;
  y[block_x() * kThreads + static_cast<unsigned>(thread_x())] = line.at[thread_x()];
}

TEST(Emulation, SharedMemoryIsNaNInEveryBlock) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, 3 * kThreads);
  launch(ctx, "read_shared", read_shared, {3}, kThreads, sizeof(Line), y.data(), true);
  EXPECT_EQ(y.host(), std::vector<float>(3 * kThreads, 1.0f));
  launch(ctx, "read_shared", read_shared, {3}, kThreads, sizeof(Line), y.data(), false);
  EXPECT_TRUE(all_nan(y.host()));
}

TANDEM_KERNEL write_shared_at(int index) {
  Line& line = block_shared<Line>();
  float* const first = &line.at[0];
  if (thread_x() == 0) first[index] = 1.0f;
}

TEST(EmulationDeathTest, TooLittleSharedMemoryEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, kThreads);
  const auto run = [&](std::size_t bytes, int index) {
    launch(ctx, "shared", write_shared_at, {1}, kThreads, bytes, index);
    ctx.synchronize();
  };
  EXPECT_DEATH(run(sizeof(Line) - 4, 0), "uses 512 bytes of shared memory, 508 were given");
  EXPECT_DEATH(run(sizeof(Line) + 4, kThreads + 1), "wrote past its shared memory");
  EXPECT_DEATH(run(sizeof(Line), kThreads), "accesses memory that is not mapped");
  run(sizeof(Line), kThreads - 1);
}

TEST(EmulationDeathTest, AHostAccessToDeviceMemoryEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, counting(100));
  volatile float* const at = y.data() + 7;
  EXPECT_DEATH(*at = 1.0f,
               "emulated CUDA: host code accesses device memory, byte 28 of an allocation of 400 bytes");
  EXPECT_DEATH((void)*at, "host code accesses device memory");
  ctx.synchronize();
  EXPECT_DEATH(*at = 1.0f, "host code accesses device memory") << "after work has run";
  EXPECT_EQ(y.host()[7], 7.0f);
}

struct Operands {
  std::int64_t n;
  const float* x;
};
TANDEM_KERNEL with_operands(float* y, Operands operands) {
  if (thread_x() < operands.n) y[thread_x()] = operands.x[thread_x()];
}

TEST(EmulationDeathTest, APointerToTheHostsMemoryAmongAKernelsArgumentsEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, 32), x(ctx, counting(32));
  std::vector<float> host(32);
  EXPECT_DEATH(write_and_wait(ctx, host.data(), 0),
               "kernel write_at is given a pointer to the host's memory");
  const auto run = [&](const float* from) {
    launch(ctx, "with_operands", with_operands, {1}, 32, 0, y.data(), Operands{32, from});
    ctx.synchronize();
  };
  EXPECT_DEATH(run(host.data()), "kernel with_operands is given a pointer to the host's memory");
  run(x.data());
}

TANDEM_KERNEL copy16(float* y, const float* x) { store16(y + 4 * thread_x(), load16(x + 4 * thread_x())); }

TEST(EmulationDeathTest, AMisalignedVectorAccessEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> x(ctx, counting(129)), y(ctx, 128);
  const auto run = [&](const float* from) {
    launch(ctx, "copy16", copy16, {1}, 32, 0, y.data(), from);
    ctx.synchronize();
  };
  EXPECT_DEATH(run(x.data() + 1),
               "kernel copy16.* accesses 16 bytes at once at an address that is no multiple");
  run(x.data());
  EXPECT_EQ(y.host(), counting(128));
}

TEST(EmulationDeathTest, ACopyBeyondAnAllocationEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, 100);
  std::vector<float> host(200);
  EXPECT_DEATH(copy_bytes_to_device(ctx, y.data() + 1, host.data(), 400),
               "400 bytes from byte 4 of an allocation of 400 bytes");
  EXPECT_DEATH(copy_bytes_to_host(ctx, host.data(), host.data(), 4),
               "is given host memory where it needs a device's");
  EXPECT_DEATH(copy_bytes_to_host(ctx, y.data(), y.data(), 4), "is given a device's memory as the host's");
}

int deep(int n, volatile int* sink) {
  volatile int local[256];
  for (int i = 0; i < 256; ++i) local[i] = n;
  *sink = local[n % 256];
  return n == 0 ? 0 : deep(n - 1, sink) + local[17];
}
TANDEM_KERNEL recurse(float* y) {
  volatile int sink = 0;
  y[thread_x()] = static_cast<float>(deep(100000, &sink));
}

TEST(EmulationDeathTest, AFibersUsedUpStackEndsWithALine) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, kThreads);
  EXPECT_DEATH(run_and_wait(ctx, recurse, y.data()), "kernel faulty.*has used up its stack");
}

// ---- asynchronous copies into shared memory ----

TANDEM_KERNEL copies_through_shared(float* y, const float* x, bool wait) {
  Line& line = block_shared<Line>();
  cp_async_16(&line.at[4 * lane()], x + 4 * lane(), true);
  cp_async_commit();
  if (wait)
    cp_async_wait<0>();
  else
    cp_async_wait<1>();
  warp_barrier();
  for (int i = 0; i < 4; ++i) y[4 * lane() + i] = line.at[127 - 4 * lane() - i];
}

TEST(Emulation, SeesAMissingWaitForAnAsynchronousCopy) {
  const auto reversed = [](bool wait) {
    const CudaContext ctx(0);
    const DeviceArray<float> x(ctx, counting(128)), y(ctx, 128);
    launch(ctx, "copies", copies_through_shared, {1}, 32, sizeof(Line), y.data(), x.data(), wait);
    const std::vector<float> got = y.host();
    for (std::size_t i = 0; i < 128; ++i)
      if (got[i] != static_cast<float>(127 - i)) return false;
    return true;
  };
  EXPECT_EQ(orders_passed([&] { return reversed(true); }), 3);
  EXPECT_EQ(orders_passed([&] { return reversed(false); }), 0);
}

// ---- streams ----

TEST(Emulation, SeesAMissingWaitBetweenStreams) {
  const auto passed = [](bool wait) {
    const CudaContext one(0), other(0);
    const DeviceArray<float> x(one, counting(32)), between(one, 32), y(other, 32);
    one.synchronize();
    other.synchronize();
    cudaEvent_t written = nullptr;
    check(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), "event");
    launch(one, "copy", copy_elements, {1}, 32, 0, between.data(), x.data(), std::int64_t{0});
    check(cudaEventRecord(written, stream_of(one)), "record");
    if (wait) check(cudaStreamWaitEvent(stream_of(other), written, 0), "wait");
    launch(other, "copy", copy_elements, {1}, 32, 0, y.data(), between.data(), std::int64_t{0});
    const std::vector<float> got = y.host();
    check(cudaEventDestroy(written), "destroy");
    return got == counting(32);
  };
  EXPECT_EQ(orders_passed([&] { return passed(true); }), 3);
  EXPECT_EQ(orders_passed([&] { return passed(false); }), 0);
}

TEST(Emulation, SeesAHostReadBeforeTheCopyIsWaitedFor) {
  const auto passed = [](bool wait) {
    const CudaContext ctx(0);
    const DeviceArray<float> x(ctx, counting(32));
    void* memory = nullptr;
    check(cudaMallocHost(&memory, 128), "page-locked memory");
    auto* const host = static_cast<float*>(memory);
    for (int i = 0; i < 32; ++i) host[i] = -1.0f;
    check(cudaMemcpyAsync(host, x.data(), 128, cudaMemcpyDeviceToHost, stream_of(ctx)), "copy");
    if (wait) ctx.synchronize();
    const std::vector<float> got(host, host + 32);
    check(cudaFreeHost(host), "free");
    return got == counting(32);
  };
  EXPECT_EQ(orders_passed([&] { return passed(true); }), 3);
  EXPECT_EQ(orders_passed([&] { return passed(false); }), 0);
}

TEST(Emulation, ACopyToTheDeviceHasReadItsSourceWhenItReturns) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, 32);
  std::vector<float> source = counting(32);
  copy_bytes_to_device(ctx, y.data(), source.data(), 128);
  source.assign(32, -1.0f);
  EXPECT_EQ(y.host(), counting(32));
}

// More than the staging ring holds, so that its pieces are used again.
TEST(Emulation, LargeAndManyCopiesToTheDeviceArrive) {
  const CudaContext ctx(0);
  const std::vector<float> large = counting(7 * 1000 * 1000);
  const DeviceArray<float> y(ctx, large);
  EXPECT_TRUE(same_bytes(y.host(), large));
  const DeviceArray<float> z(ctx, 100000);
  for (std::int64_t i = 0; i < 100000; i += 1000)
    copy_bytes_to_device(ctx, z.data() + i, large.data() + i, 4000);
  EXPECT_TRUE(same_bytes(z.host(), counting(100000)));
}

TEST(Emulation, AQuerySaysNotReadyAndThenReady) {
  const CudaContext ctx(0);
  const DeviceArray<float> y(ctx, 32);
  zero_bytes(ctx, y.data(), 128);
  EXPECT_EQ(cudaStreamQuery(stream_of(ctx)), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_of(ctx)), cudaSuccess);
}

TEST(Emulation, SeveralHostThreadsHaveAContextEach) {
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&right, t] {
      const CudaContext ctx(0);
      for (int round = 0; round < 20; ++round) {
        const DeviceArray<float> x(ctx, counting(kThreads)), y(ctx, kThreads);
        launch(ctx, "reverse", reverse_block, {1}, kThreads, sizeof(Line), y.data(), x.data(), true);
        const std::vector<float> got = y.host();
        right[t] += got[0] == kThreads - 1 && got[kThreads - 1] == 0.0f;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

TEST(Emulation, AContextOfTheSecondDeviceIsUsedFromAnotherThread) {
  emulation::facts().devices = 2;
  {
    const CudaContext ctx(1);
    std::vector<float> got;
    std::thread([&] {
      const DeviceArray<float> x(ctx, counting(kThreads));
      const DeviceArray<float> y(ctx, kThreads);
      launch(ctx, "reverse", reverse_block, {1}, kThreads, sizeof(Line), y.data(), x.data(), true);
      got = y.host();
    }).join();
    EXPECT_EQ(got[0], kThreads - 1);
  }
  emulation::facts().devices = 1;
}

// ---- sums, atomics and numbers of port.hpp ----

TANDEM_KERNEL sums_of_threads(float* sum, float* largest, unsigned long long* total, long long* least) {
  float* const shared = &block_shared<Line>().at[0];
  const auto mine = static_cast<float>(thread_x() + 1);
  sum[thread_x()] = block_sum(mine, shared);
  largest[thread_x()] = block_max(thread_x() == 7 ? 1000.0f : mine, shared);
  atomic_add(total, 3ull);
  atomic_min(least, 50ll - thread_x());
}

TEST(Emulation, SumsOfABlockReachEveryThread) {
  const auto passed = [] {
    const CudaContext ctx(0);
    const DeviceArray<float> sum(ctx, kThreads), largest(ctx, kThreads);
    const DeviceArray<unsigned long long> total(ctx, std::vector{1ull});
    const DeviceArray<long long> least(ctx, std::vector{60ll});
    launch(ctx, "sums", sums_of_threads, {1}, kThreads, sizeof(Line), sum.data(), largest.data(),
           total.data(), least.data());
    return sum.host() == std::vector<float>(kThreads, kThreads * (kThreads + 1) / 2.0f) &&
           largest.host() == std::vector<float>(kThreads, 1000.0f) &&
           total.host()[0] == 1 + 3ull * kThreads && least.host()[0] == 50 - (kThreads - 1);
  };
  EXPECT_EQ(orders_passed(passed), 3);
}

TANDEM_KERNEL shuffles(int* y) {
  y[lane()] = shuffle_xor(lane(), 5);
  y[32 + lane()] = shuffle_down(lane(), 3);
  y[64 + lane()] = shuffle(lane(), 9);
  y[96 + lane()] = static_cast<int>(shuffle_xor(1.5 * lane(), 1) * 2.0);
}

TEST(Emulation, ShufflesGiveTheLaneThatIsMeant) {
  const auto passed = [] {
    const CudaContext ctx(0);
    const DeviceArray<int> y(ctx, 128);
    launch(ctx, "shuffles", shuffles, {1}, 32, 0, y.data());
    const std::vector<int> got = y.host();
    for (int i = 0; i < 32; ++i) {
      const auto at = [&](int row) { return got[static_cast<std::size_t>(32 * row + i)]; };
      if (at(0) != (i ^ 5) || at(1) != (i + 3 < 32 ? i + 3 : i) || at(2) != 9 || at(3) != 3 * (i ^ 1))
        return false;
    }
    return true;
  };
  EXPECT_EQ(orders_passed(passed), 3);
}

TEST(Port, Bf16RoundsAsOnTheHost) {
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      ASSERT_EQ(to_bf16(value).bits, f32_to_bf16(value)) << high << " " << low;
    }
  const std::uint32_t word = pack(1.5f, -3.0f);
  EXPECT_EQ(unpack_first(word), 1.5f);
  EXPECT_EQ(unpack_second(word), -3.0f);
}

}  // namespace
}  // namespace tandem::testing
