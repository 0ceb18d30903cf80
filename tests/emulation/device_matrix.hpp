// Operands of a kernel under test: each in an allocation of its own, so that a write next to it is seen, and
// NaN wherever there is no element.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda_context.hpp"
#include "src/base/dtype.hpp"
#include "src/base/matrix.hpp"
#include "src/base/random.hpp"

namespace tandem::testing {

inline float value_of(float element) { return element; }
inline float value_of(Bf16 element) { return bf16_to_f32(element.bits); }
template <class T>
T element_of(double value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return Bf16{f64_to_bf16(value)};
  else
    return static_cast<T>(value);
}

// Elements of any type that can be copied as bytes.
template <class T>
class DeviceArray {
 public:
  // `size` elements whose bytes are all 0xFF (a NaN), `offset` elements after the allocation's begin.
  DeviceArray(const CudaContext& ctx, std::int64_t size, std::int64_t offset = 0)
      : ctx_(&ctx), size_(size), offset_(offset) {
    const auto bytes = static_cast<std::size_t>(size + offset) * sizeof(T);
    if (bytes == 0) return;
    void* memory = nullptr;
    cuda::check(cudaMalloc(&memory, bytes), "memory of a test");
    memory_ = static_cast<T*>(memory);
    const std::vector<unsigned char> nan(bytes, 0xFF);
    copy_bytes_to_device(ctx, memory, nan.data(), bytes);
  }
  DeviceArray(const CudaContext& ctx, const std::vector<T>& values, std::int64_t offset = 0)
      : DeviceArray(ctx, static_cast<std::int64_t>(values.size()), offset) {
    copy_bytes_to_device(ctx, data(), values.data(), values.size() * sizeof(T));
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(DeviceArray&& other) noexcept
      : ctx_(other.ctx_),
        size_(other.size_),
        offset_(other.offset_),
        memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return memory_ + offset_; }
  std::int64_t size() const { return size_; }
  std::span<T> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> cspan() const { return span(); }
  // Waits for the stream.
  std::vector<T> host() const {
    std::vector<T> values(static_cast<std::size_t>(size_));
    copy_bytes_to_host(*ctx_, values.data(), data(), values.size() * sizeof(T));
    return values;
  }

 private:
  const CudaContext* ctx_;
  std::int64_t size_, offset_;
  T* memory_ = nullptr;
};

// T: float or Bf16. A row is `padding` elements apart from the next; the first is `offset` elements after the
// allocation's begin.
template <class T>
class DeviceMatrix {
 public:
  DeviceMatrix(const CudaContext& ctx, std::int64_t rows, std::int64_t cols, std::int64_t padding = 0,
               std::int64_t offset = 0)
      : ctx_(&ctx),
        rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        all_(ctx, rows > 0 ? (rows - 1) * stride_ + cols : 0, offset) {}

  // Row by row, rows * cols of them; rounded to T.
  template <class Number>
  DeviceMatrix& set(const std::vector<Number>& values) {
    std::vector<T> all = all_.host();
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c)
        all[static_cast<std::size_t>(r * stride_ + c)] =
            element_of<T>(static_cast<double>(values[static_cast<std::size_t>(r * cols_ + c)]));
    copy_bytes_to_device(*ctx_, all_.data(), all.data(), all.size() * sizeof(T));
    return *this;
  }
  // Uniform in [-scale, scale), by name: the same values at any padding and offset.
  DeviceMatrix& fill(const char* name, double scale = 1.0) {
    const RandomStream stream(1, name);
    std::vector<double> values(static_cast<std::size_t>(rows_ * cols_));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * (2.0 * stream.unit(i) - 1.0);
    return set(values);
  }

  MatrixView<T> view() const { return {all_.data(), rows_, cols_, stride_}; }
  MatrixView<const T> cview() const { return view(); }
  std::span<T> span() const { return all_.span(); }  // where there is no padding
  // Elements alone, row by row. Waits for the stream.
  std::vector<T> elements() const {
    const std::vector<T> all = all_.host();
    std::vector<T> out;
    for (std::int64_t r = 0; r < rows_; ++r)
      out.insert(out.end(), all.begin() + r * stride_, all.begin() + r * stride_ + cols_);
    return out;
  }
  // The elements as numbers: what a float64 reference starts from.
  std::vector<double> values() const {
    std::vector<double> out;
    for (const T element : elements()) out.push_back(static_cast<double>(value_of(element)));
    return out;
  }
  // Nothing has been written between the rows.
  bool padding_intact() const {
    const std::vector<T> all = all_.host();
    for (std::int64_t r = 0; r + 1 < rows_; ++r)
      for (std::int64_t c = cols_; c < stride_; ++c) {
        const T element = all[static_cast<std::size_t>(r * stride_ + c)];
        unsigned char bytes[sizeof(T)];
        std::memcpy(bytes, &element, sizeof(T));
        for (const unsigned char byte : bytes)
          if (byte != 0xFF) return false;
      }
    return true;
  }

 private:
  const CudaContext* ctx_;
  std::int64_t rows_, cols_, stride_;
  DeviceArray<T> all_;
};

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace tandem::testing
