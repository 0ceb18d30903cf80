// What device code may use: the same source is compiled by nvcc, and by the host's compiler for tests without
// a GPU (TANDEM_EMULATED), where each CUDA thread is a fiber (tests/emulation).
//
// Blocks are one-dimensional and a whole number of warps. Shared memory is block_shared<Layout>() alone: a
// __shared__ variable would be each thread's own under the host's compiler. No atomics on floats anywhere.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/bf16.hpp"

#ifdef TANDEM_EMULATED
#include "kernels/cuda/emulated.hpp"
#define TANDEM_KERNEL void
#define TANDEM_KERNEL_BOUNDS(max_threads, min_blocks) void
#define TANDEM_DEVICE inline
#define TANDEM_HOST_DEVICE inline
#else
#include <cuda_runtime.h>
// A kernel's return type: `template <int kDim> TANDEM_KERNEL add(float* y, ...) {...}`
#define TANDEM_KERNEL __global__ void
// One that runs with at most `max_threads` a block, `min_blocks` of them at a time on a multiprocessor.
#define TANDEM_KERNEL_BOUNDS(max_threads, min_blocks) \
  __global__ void __launch_bounds__(max_threads, min_blocks)
#define TANDEM_DEVICE __device__ __forceinline__
#define TANDEM_HOST_DEVICE __host__ __device__ __forceinline__
#endif

// Before a loop. Array elements are registers only where every index is known when the code is compiled.
#ifdef TANDEM_EMULATED
#define TANDEM_UNROLL
#define TANDEM_UNROLL_BY(count)
#else
#define TANDEM_PRAGMA(words) _Pragma(#words)
#define TANDEM_UNROLL _Pragma("unroll")
#define TANDEM_UNROLL_BY(count) TANDEM_PRAGMA(unroll count)
#endif

namespace tandem::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// ---- where a thread is ----

#ifdef TANDEM_EMULATED
inline int thread_x() { return emulated::here.thread; }
inline int thread_count() { return emulated::here.threads; }
inline unsigned block_x() { return emulated::here.block[0]; }
inline unsigned block_y() { return emulated::here.block[1]; }
inline unsigned block_z() { return emulated::here.block[2]; }
inline unsigned grid_x() { return emulated::here.grid[0]; }
inline unsigned grid_y() { return emulated::here.grid[1]; }
inline unsigned grid_z() { return emulated::here.grid[2]; }
#else
TANDEM_DEVICE int thread_x() { return static_cast<int>(threadIdx.x); }
TANDEM_DEVICE int thread_count() { return static_cast<int>(blockDim.x); }
TANDEM_DEVICE unsigned block_x() { return blockIdx.x; }
TANDEM_DEVICE unsigned block_y() { return blockIdx.y; }
TANDEM_DEVICE unsigned block_z() { return blockIdx.z; }
TANDEM_DEVICE unsigned grid_x() { return gridDim.x; }
TANDEM_DEVICE unsigned grid_y() { return gridDim.y; }
TANDEM_DEVICE unsigned grid_z() { return gridDim.z; }
#endif
// One instruction each: the compiler does not know that thread_x() is not negative.
TANDEM_DEVICE int lane() { return thread_x() & (kWarp - 1); }
TANDEM_DEVICE int warp() { return thread_x() >> 5; }
// This thread's number among those of the grid's x dimension, and how many they are.
TANDEM_DEVICE std::int64_t global_thread() {
  return static_cast<std::int64_t>(block_x()) * thread_count() + thread_x();
}
TANDEM_DEVICE std::int64_t global_thread_count() {
  return static_cast<std::int64_t>(grid_x()) * thread_count();
}

// ---- together with other threads ----

// Every thread of the block comes here, none has ended before.
#ifdef TANDEM_EMULATED
inline void barrier() { emulated::barrier(); }
inline void warp_barrier() { emulated::warp_barrier(); }
inline void warp_order() { emulated::warp_barrier(); }
#else
TANDEM_DEVICE void barrier() { __syncthreads(); }
TANDEM_DEVICE void warp_barrier() { __syncwarp(kAllLanes); }
// The same, where what it orders (a store after other lanes' ldmatrix) cannot go wrong under emulation.
TANDEM_DEVICE void warp_order() { __syncwarp(kAllLanes); }
#endif

// Between the lanes of a warp, all of which take part: the value of lane() ^ mask, of lane() + delta (its own
// where that is beyond the warp), of lane `from`. T has 4 or 8 bytes.
#ifdef TANDEM_EMULATED
template <class T>
T shuffle_xor(T value, int mask) {
  return emulated::shuffled(value, emulated::Shuffle::kXor, mask);
}
template <class T>
T shuffle_down(T value, int delta) {
  return emulated::shuffled(value, emulated::Shuffle::kDown, delta);
}
template <class T>
T shuffle(T value, int from) {
  return emulated::shuffled(value, emulated::Shuffle::kFrom, from);
}
#else
template <class T>
TANDEM_DEVICE T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <class T>
TANDEM_DEVICE T shuffle_down(T value, int delta) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return __shfl_down_sync(kAllLanes, value, static_cast<unsigned>(delta));
}
template <class T>
TANDEM_DEVICE T shuffle(T value, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return __shfl_sync(kAllLanes, value, from);
}
#endif

// The block's shared memory, of the size given at the launch; 16-byte aligned, its contents not set.
template <class Layout>
TANDEM_DEVICE Layout& block_shared() {
#ifdef TANDEM_EMULATED
  return *static_cast<Layout*>(emulated::shared_memory(sizeof(Layout)));
#else
  static_assert(alignof(Layout) <= 16);
  extern __shared__ __align__(16) unsigned char tandem_block_shared[];
  return *reinterpret_cast<Layout*>(tandem_block_shared);
#endif
}

// Integers in any order give the same result; floats would not.
#ifdef TANDEM_EMULATED
inline unsigned long long atomic_add(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  *at += value;
  return before;
}
inline long long atomic_min(long long* at, long long value) {
  const long long before = *at;
  if (value < before) *at = value;
  return before;
}
#else
TANDEM_DEVICE unsigned long long atomic_add(unsigned long long* at, unsigned long long value) {
  return atomicAdd(at, value);
}
TANDEM_DEVICE long long atomic_min(long long* at, long long value) { return atomicMin(at, value); }
#endif

// ---- sums in an order fixed by the shape; every lane, or thread, gets the result ----

template <class T>
TANDEM_DEVICE T warp_sum(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// NaN where any is NaN.
template <class T>
TANDEM_DEVICE T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
TANDEM_DEVICE T warp_max(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}

// shared32: 32 elements of shared memory, which nobody else uses meanwhile; free again on return.
template <class T>
TANDEM_DEVICE T block_sum(T value, T* shared32) {
  value = warp_sum(value);
  if (lane() == 0) shared32[warp()] = value;
  barrier();
  value = warp_sum(lane() < thread_count() / kWarp ? shared32[lane()] : T{});
  barrier();
  return value;
}
template <class T>
TANDEM_DEVICE T block_max(T value, T* shared32) {
  value = warp_max(value);
  if (lane() == 0) shared32[warp()] = value;
  barrier();
  value = warp_max(shared32[lane() < thread_count() / kWarp ? lane() : 0]);
  barrier();
  return value;
}

// ---- numbers ----

TANDEM_HOST_DEVICE float float_of_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
TANDEM_HOST_DEVICE std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

// bfloat16 is the upper half of a float32: widening is exact.
TANDEM_HOST_DEVICE float to_float(Bf16 value) {
  return float_of_bits(static_cast<std::uint32_t>(value.bits) << 16);
}
TANDEM_HOST_DEVICE float to_float(float value) { return value; }

// To nearest even; NaN stays NaN. The bits of dtype.hpp's f32_to_bf16.
TANDEM_HOST_DEVICE Bf16 to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// A float as an element of type T: itself, or rounded to Bf16.
template <class T>
TANDEM_HOST_DEVICE T rounded_to(float value) {
  if constexpr (sizeof(T) == sizeof(Bf16))
    return to_bf16(value);
  else
    return value;
}

// Two Bf16 in a word: the first in the lower half, as they lie in memory.
TANDEM_HOST_DEVICE std::uint32_t pack(Bf16 first, Bf16 second) {
  return static_cast<std::uint32_t>(first.bits) | static_cast<std::uint32_t>(second.bits) << 16;
}
TANDEM_HOST_DEVICE std::uint32_t pack(float first, float second) {
  return pack(to_bf16(first), to_bf16(second));
}
TANDEM_HOST_DEVICE float unpack_first(std::uint32_t word) { return float_of_bits(word << 16); }
TANDEM_HOST_DEVICE float unpack_second(std::uint32_t word) { return float_of_bits(word & 0xFFFF0000u); }

// The accurate functions of the library (at most 2 units in the last place off); sqrt and division are exact
// to rounding.
TANDEM_DEVICE float exp_f32(float x) { return expf(x); }
TANDEM_DEVICE float log_f32(float x) { return logf(x); }
TANDEM_DEVICE float sqrt_f32(float x) { return sqrtf(x); }
TANDEM_DEVICE float fma_f32(float a, float b, float c) { return fmaf(a, b, c); }

// ---- 16 bytes at a time ----

template <class T>
struct alignas(16) Vec16 {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T at[kCount];
};

TANDEM_HOST_DEVICE bool aligned16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// `from`, `to`: aligned to 16 bytes.
template <class T>
TANDEM_DEVICE Vec16<T> load16(const T* from) {
#ifdef TANDEM_EMULATED
  emulated::check_aligned(from, 16);
  Vec16<T> value;
  std::memcpy(&value, from, sizeof(value));
  return value;
#else
  return *reinterpret_cast<const Vec16<T>*>(from);
#endif
}
template <class T>
TANDEM_DEVICE void store16(T* to, const Vec16<T>& value) {
#ifdef TANDEM_EMULATED
  emulated::check_aligned(to, 16);
  std::memcpy(to, &value, sizeof(value));
#else
  *reinterpret_cast<Vec16<T>*>(to) = value;
#endif
}

}  // namespace tandem::cuda
