// What port.hpp and launch.hpp lean on where kernels are compiled for tests without a GPU; implemented in
// tests/emulation.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace tandem::cuda::emulated {

// Where the running fiber is.
struct Place {
  int thread = 0, threads = 0;
  unsigned block[3] = {}, grid[3] = {};
};
extern constinit thread_local Place here;

void barrier();
void warp_barrier();

enum class Shuffle { kXor, kDown, kFrom };
// The bits that the lane meant by `how` and `operand` gave.
std::uint64_t exchange(std::uint64_t bits, Shuffle how, int operand);

template <class T>
T shuffled(T value, Shuffle how, int operand) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(exchange(std::bit_cast<Bits>(value), how, operand)));
}

// What each lane of a warp gives (at most 64 bytes, all lanes the same `operation`); the result's element
// [lane] is that lane's, until this thread's next exchange. For instructions that a whole warp executes.
using LaneBytes = std::byte[64];
const LaneBytes* gather(const char* operation, const void* mine, std::size_t bytes);

// cp.async: copies that arrive, at the latest moment allowed, when their thread waits for them. `taken` bytes
// of the source and then zeros, `bytes` together.
void copy_later(void* shared, const void* source, std::size_t taken, std::size_t bytes);
void close_copies();
void finish_copies(int pending_groups);

// The block's shared memory; a violation where fewer than `bytes` were given at the launch.
void* shared_memory(std::size_t bytes);
void check_aligned(const void* pointer, std::size_t alignment);

// Ends the program with one line: the kernel, block and thread that run, and `what` they did.
[[noreturn]] void violation(const char* what);

// cudaLaunchKernelExC for a kernel that is called by `thread`, once for each thread. `function`: its address.
cudaError_t launch(const cudaLaunchConfig_t& config, const char* name, const void* function,
                   std::function<void()> thread);
// What lies between a structure's members may look like a pointer.
template <class T>
void clear_padding(T& value) {
  __builtin_clear_padding(&value);
}
// An argument of a kernel: a violation where it is, or holds, a pointer to the host's memory.
void check_argument(const char* kernel, const void* argument, std::size_t bytes);

}  // namespace tandem::cuda::emulated
