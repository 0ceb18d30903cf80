// One CUDA device and the stream that operations are given to. An operation returns before it has run;
// operands are in the device's memory, and results on the host are there when it returns only where it says
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/arena.hpp"

namespace tandem {

// How products of float32 matrices are computed. Anything but kF32 is asked for by name (precision = tf32).
enum class ProductMode { kF32, kTf32 };

class CudaContext {
 public:
  // device: ordinal among those that this process sees. Throws kDevice: no driver, an older driver than the
  // toolkit needs, no such device, a device older than the kernels are built for, no memory.
  explicit CudaContext(int device, ProductMode mode = ProductMode::kF32);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int device() const;
  ProductMode mode() const;
  // cudaStream_t, as those know it who include CUDA's headers (kernels/cuda, comm/nccl).
  void* stream() const;
  // Waits until all that was given to the stream has run. Throws kDevice where any of it failed.
  void synchronize() const;

  // Memory that one operation uses while it runs. Planned: reserve() before the run, never in an update;
  // scratch() throws kInternal where less was reserved. `bytes` of one operation at a time, 256-byte aligned.
  void reserve(std::size_t bytes);
  void* scratch(std::size_t bytes) const;

  struct Members;  // kernels/cuda/context_members.hpp
  Members& members() const { return *members_; }

 private:
  std::unique_ptr<Members> members_;
};

// Memory of a device, taken in pieces as from an Arena. Its contents are not set.
class DeviceArena : public ArenaView {
 public:
  DeviceArena() : ArenaView({}, "") {}
  // Throws kDevice naming `what`, the size and what is free, where the device has not that much.
  DeviceArena(const CudaContext& ctx, std::size_t bytes, const char* what);
  ~DeviceArena();
  DeviceArena(DeviceArena&& other) noexcept;
  DeviceArena& operator=(DeviceArena&& other) noexcept;

  std::span<std::byte> block() const { return block_; }
  std::size_t bytes() const { return block_.size(); }

 private:
  int device_ = 0;
};

// Copies between host and device and within the device, in the stream's order. to_device() has read its
// source when it returns; to_host() waits for the copy.
void copy_bytes_to_device(const CudaContext& ctx, void* device, const void* host, std::size_t bytes);
void copy_bytes_to_host(const CudaContext& ctx, void* host, const void* device, std::size_t bytes);
void copy_bytes_on_device(const CudaContext& ctx, void* to, const void* from, std::size_t bytes);
void zero_bytes(const CudaContext& ctx, void* device, std::size_t bytes);

template <class T>
void copy_to_device(const CudaContext& ctx, std::span<T> device, std::span<const T> host) {
  copy_bytes_to_device(ctx, device.data(), host.data(), host.size_bytes());
}
template <class T>
void copy_to_host(const CudaContext& ctx, std::span<T> host, std::span<const T> device) {
  copy_bytes_to_host(ctx, host.data(), device.data(), host.size_bytes());
}

}  // namespace tandem
