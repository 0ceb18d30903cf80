// Neighbouring elements of a row as float32: one access where they lie aligned and are all there, else one by
// one, with the same values. Which thread takes which elements never depends on where they lie.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/port.hpp"

namespace tandem::cuda {

// Elements of T that fill 16 bytes.
template <class T>
inline constexpr int kUnit = static_cast<int>(16 / sizeof(T));

// Threads of a block that goes along a row, a unit each at a time.
inline int row_threads(std::int64_t cols, int unit) {
  constexpr std::int64_t kMost = 128;
  const std::int64_t wanted = (cols + unit - 1) / unit;
  return static_cast<int>(std::min(kMost, std::max<std::int64_t>(1, (wanted + kWarp - 1) / kWarp) * kWarp));
}

template <int N, class T>
struct alignas(N * sizeof(T)) Packed {
  T at[N];
};

template <int N, class T>
TANDEM_DEVICE bool packed(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(Packed<N, T>) == 0;
}

// v[i] = from[i] for i < n, `other` beyond. n may exceed N, and be negative.
template <int N, class T>
TANDEM_DEVICE void load(float (&v)[N], const T* from, std::int64_t n, float other = 0.0f) {
  if (n >= N && packed<N>(from)) {
    const auto all = *reinterpret_cast<const Packed<N, T>*>(from);
    TANDEM_UNROLL
    for (int i = 0; i < N; ++i) v[i] = to_float(all.at[i]);
  } else {
    TANDEM_UNROLL
    for (int i = 0; i < N; ++i) v[i] = i < n ? to_float(from[i]) : other;
  }
}

template <int N, class T>
TANDEM_DEVICE void store(T* to, const float (&v)[N], std::int64_t n) {
  if (n >= N && packed<N>(to)) {
    Packed<N, T> all;
    TANDEM_UNROLL
    for (int i = 0; i < N; ++i) all.at[i] = rounded_to<T>(v[i]);
    *reinterpret_cast<Packed<N, T>*>(to) = all;
  } else {
    TANDEM_UNROLL
    for (int i = 0; i < N; ++i)
      if (i < n) to[i] = rounded_to<T>(v[i]);
  }
}

}  // namespace tandem::cuda
