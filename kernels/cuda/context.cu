// A device, its stream, its memory, and copies.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/context_members.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda_context.hpp"
#include "src/base/error.hpp"

namespace tandem {

namespace {

using cuda::check;

constexpr int kOldestMajor = 8;  // compute capability: cp.async, bfloat16 on tensor cores

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

void check_driver() {
  int driver = 0, runtime = 0;
  check(cudaRuntimeGetVersion(&runtime), "the version of CUDA's runtime");
  check(cudaDriverGetVersion(&driver), "the version of the NVIDIA driver");
  if (driver == 0)
    throw Error(ErrorKind::kDevice,
                cat("no NVIDIA driver here: one for CUDA ", runtime / 1000, ".0 or newer is needed"));
  // A driver serves all toolkits of its major version.
  if (driver / 1000 < runtime / 1000)
    throw Error(ErrorKind::kDevice, cat("the NVIDIA driver is too old: it is for CUDA ", version_text(driver),
                                        ", CUDA ", runtime / 1000,
                                        ".0 or newer is needed; install a newer one, "
                                        "or build with an older CUDA toolkit"));
}

void check_device_exists(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string shown = visible ? cat(" (CUDA_VISIBLE_DEVICES=", visible, ")") : "";
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    cudaGetLastError();
    throw Error(ErrorKind::kDevice, cat("this process sees no GPU", shown));
  }
  check(error, "the number of GPUs");
  if (device < 0 || device >= count)
    throw Error(ErrorKind::kDevice,
                cat("no GPU ", device, ": this process sees ", counted(count, "GPU"), shown));
}

std::string mebibytes(std::size_t bytes) { return cat((bytes + (std::size_t{1} << 20) - 1) >> 20, " MiB"); }

void* device_memory(int device, std::size_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  check(cudaSetDevice(device), "setting the GPU");
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "the GPU's free memory");
    throw Error(ErrorKind::kDevice, cat("out of memory on GPU ", device, ": ", mebibytes(bytes), " for ",
                                        what, ", ", free >> 20, " of ", total >> 20, " MiB are free"));
  }
  check(error, "memory of the GPU");
  return memory;
}

// A thread that was not the context's maker has the first device as its own.
void use(const CudaContext& ctx) { check(cudaSetDevice(ctx.device()), "setting the GPU"); }

void make(CudaContext::Members& m) {
  check_driver();
  check_device_exists(m.device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, m.device), "the GPU's properties");
  if (properties.major < kOldestMajor)
    throw Error(ErrorKind::kDevice,
                cat("GPU ", m.device, " (", properties.name, ") has compute capability ", properties.major,
                    ".", properties.minor, "; ", kOldestMajor, ".0 or newer is needed"));
  m.multiprocessors = properties.multiProcessorCount;
  m.shared_bytes_limit = properties.sharedMemPerBlockOptin;
  check(cudaSetDevice(m.device), "setting the GPU");
  check(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking), "a stream of the GPU");
  void* staging = nullptr;
  check(cudaMallocHost(&staging, m.kPieces * m.kPieceBytes), "page-locked memory");
  m.staging = static_cast<std::byte*>(staging);
  for (cudaEvent_t& event : m.piece_read)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event of the GPU");
}

// Errors have no one to go to here; those of work still running have been met by synchronize().
void end(CudaContext::Members& m) {
  cudaSetDevice(m.device);  // this thread's may be another
  if (m.stream) cudaStreamSynchronize(m.stream);
  m.product.reset();
  for (cudaEvent_t event : m.piece_read)
    if (event) cudaEventDestroy(event);
  if (m.staging) cudaFreeHost(m.staging);
  if (m.scratch) cudaFree(m.scratch);
  if (m.stream) cudaStreamDestroy(m.stream);
  cudaGetLastError();
}

}  // namespace

CudaContext::CudaContext(int device, ProductMode mode) : members_(std::make_unique<Members>()) {
  members_->device = device;
  members_->mode = mode;
  try {
    make(*members_);
  } catch (...) {
    end(*members_);
    throw;
  }
}

CudaContext::~CudaContext() { end(*members_); }

int CudaContext::device() const { return members_->device; }
ProductMode CudaContext::mode() const { return members_->mode; }
void* CudaContext::stream() const { return members_->stream; }

void CudaContext::synchronize() const { check(cudaStreamSynchronize(members_->stream), "work on the GPU"); }

void CudaContext::reserve(std::size_t bytes) {
  Members& m = *members_;
  if (bytes <= m.scratch_bytes) return;
  m.scratch_bytes = 0;
  if (m.scratch) check(cudaFree(m.scratch), "freeing memory of the GPU");
  m.scratch = nullptr;
  m.scratch = device_memory(m.device, bytes, "scratch");
  m.scratch_bytes = bytes;
}

void* CudaContext::scratch(std::size_t bytes) const {
  if (bytes > members_->scratch_bytes)
    throw Error(ErrorKind::kInternal,
                cat("scratch of ", bytes, " bytes asked for, ", members_->scratch_bytes, " reserved"));
  return members_->scratch;
}

// ---- memory ----

DeviceArena::DeviceArena(const CudaContext& ctx, std::size_t bytes, const char* what)
    : ArenaView({}, what), device_(ctx.device()) {
  const std::size_t size = ArenaPlan::padded(bytes);
  block_ = {static_cast<std::byte*>(device_memory(device_, size, what)), size};
}

DeviceArena::~DeviceArena() {
  if (block_.data()) cudaFree(block_.data());
}

DeviceArena::DeviceArena(DeviceArena&& other) noexcept : DeviceArena() { *this = std::move(other); }

DeviceArena& DeviceArena::operator=(DeviceArena&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(used_, other.used_);
  std::swap(what_, other.what_);
  std::swap(device_, other.device_);
  return *this;
}

// ---- copies ----

void copy_bytes_to_device(const CudaContext& ctx, void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  use(ctx);
  CudaContext::Members& m = ctx.members();
  auto* to = static_cast<std::byte*>(device);
  const auto* from = static_cast<const std::byte*>(host);
  while (bytes > 0) {
    if (m.piece_used == m.kPieceBytes) {
      check(cudaEventRecord(m.piece_read[m.piece], m.stream), "an event after a copy to the GPU");
      m.piece = (m.piece + 1) % m.kPieces;
      check(cudaEventSynchronize(m.piece_read[m.piece]), "waiting for a copy to the GPU");
      m.piece_used = 0;
    }
    const std::size_t n = std::min(bytes, m.kPieceBytes - m.piece_used);
    std::byte* const staged = m.staging + static_cast<std::size_t>(m.piece) * m.kPieceBytes + m.piece_used;
    std::memcpy(staged, from, n);
    check(cudaMemcpyAsync(to, staged, n, cudaMemcpyHostToDevice, m.stream), "a copy to the GPU");
    m.piece_used = std::min(m.kPieceBytes, m.piece_used + ArenaPlan::padded(n));
    to += n;
    from += n;
    bytes -= n;
  }
}

void copy_bytes_to_host(const CudaContext& ctx, void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  use(ctx);
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, ctx.members().stream),
        "a copy from the GPU");
  check(cudaStreamSynchronize(ctx.members().stream), "waiting for a copy from the GPU");
}

void copy_bytes_on_device(const CudaContext& ctx, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  use(ctx);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, ctx.members().stream),
        "a copy on the GPU");
}

void zero_bytes(const CudaContext& ctx, void* device, std::size_t bytes) {
  if (bytes == 0) return;
  use(ctx);
  check(cudaMemsetAsync(device, 0, bytes, ctx.members().stream), "clearing memory of the GPU");
}

// ---- kernels ----

namespace cuda {

cudaLaunchConfig_t launch_config(const CudaContext& ctx, const char* name, const Grid& grid, int threads,
                                 std::size_t shared_bytes) {
  constexpr std::int64_t kMaxX = 0x7FFFFFFF, kMaxOther = 65535;
  if (grid.x < 0 || grid.x > kMaxX || grid.y < 0 || grid.y > kMaxOther || grid.z < 0 || grid.z > kMaxOther ||
      threads <= 0 || threads > 1024 || threads % kWarp != 0)
    throw Error(ErrorKind::kInternal, cat(name, ": a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
                                          " blocks of ", threads, " threads cannot be started"));
  use(ctx);
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = ctx.members().stream;
  return config;
}

void allow_shared_bytes(const CudaContext& ctx, const char* name, const void* kernel, std::size_t bytes) {
  CudaContext::Members& m = ctx.members();
  std::size_t& allowed = m.shared_bytes_allowed[kernel];
  if (bytes <= allowed) return;
  if (bytes > m.shared_bytes_limit)
    throw Error(ErrorKind::kDevice,
                cat(name, " needs ", bytes >> 10, " KiB of shared memory a block; this GPU has ",
                    m.shared_bytes_limit >> 10));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        name);
  allowed = bytes;
}

}  // namespace cuda

}  // namespace tandem
