// The functions of CUDA's runtime that the project calls, on the emulated device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>

#include "kernels/cuda/emulated.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/grid.hpp"
#include "tests/emulation/memory.hpp"
#include "tests/emulation/streams.hpp"

namespace tandem::emulation {

namespace {

using cuda::emulated::violation;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a call of the function has to fail with, before it does anything.
cudaError_t to_inject(const char* function) { return static_cast<cudaError_t>(injected(function)); }

// What every call but those that ask for versions meets first.
cudaError_t driver_state(const char* function) {
  if (const cudaError_t error = to_inject(function); error != cudaSuccess) return noted(error);
  if (facts().driver_version == 0 || facts().driver_version < CUDART_VERSION / 1000 * 1000)
    return noted(cudaErrorInsufficientDriver);
  if (facts().devices == 0) return noted(cudaErrorNoDevice);
  return cudaSuccess;
}

struct Host {
  std::mutex lock;
  std::map<const void*, cudaStream_t> events;
  std::map<std::pair<int, const void*>, int> shared_allowed;  // by device and kernel
  std::set<void*> pinned;
};

Host& host() {
  static auto* const it = new Host;
  return *it;
}

Event* event_of(cudaEvent_t handle) {
  const std::lock_guard lock(host().lock);
  return host().events.contains(handle) ? reinterpret_cast<Event*>(handle) : nullptr;
}

constexpr std::size_t kSharedUnasked = std::size_t{48} << 10;

// Threads and shared memory of each kernel, the most it has been started with: written to stderr at the end
// where TANDEM_EMULATED_LAUNCHES is set.
class LaunchTable {
 public:
  void note(const std::string& kernel, int threads, std::size_t shared_bytes) {
    if (!wanted_) return;
    const std::lock_guard lock(lock_);
    auto& [most_threads, most_shared] = most_[kernel];
    most_threads = std::max(most_threads, threads);
    most_shared = std::max(most_shared, shared_bytes);
  }
  ~LaunchTable() {
    for (const auto& [kernel, most] : most_)
      std::fprintf(stderr, "emulated launch: %s | %d threads | %zu bytes of shared memory\n", kernel.c_str(),
                   most.first, most.second);
  }

 private:
  const bool wanted_ = std::getenv("TANDEM_EMULATED_LAUNCHES") != nullptr;
  std::mutex lock_;
  std::map<std::string, std::pair<int, std::size_t>> most_;
};
LaunchTable launch_table;

bool launchable(const cudaLaunchConfig_t& config, const void* function, int device) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535)
    return false;
  if (block.x == 0 || block.x > 1024 || block.y != 1 || block.z != 1) return false;
  if (config.dynamicSmemBytes <= kSharedUnasked) return true;
  const std::lock_guard lock(host().lock);
  const auto allowed = host().shared_allowed.find({device, function});
  return allowed != host().shared_allowed.end() &&
         config.dynamicSmemBytes <= static_cast<std::size_t>(allowed->second);
}

void check_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device)
    check_device_range("cudaMemcpyAsync's destination", to, bytes);
  else if (is_device_address(to))
    violation("cudaMemcpyAsync is given a device's memory as the host's");
  if (from_device)
    check_device_range("cudaMemcpyAsync's source", from, bytes);
  else if (is_device_address(from))
    violation("cudaMemcpyAsync is given a device's memory as the host's");
}

}  // namespace

int number_of(int device) {
  const auto place = static_cast<std::size_t>(device);
  return place < facts().numbers.size() ? facts().numbers[place] : device;
}

Facts& facts() {
  static Facts it = [] {
    Facts start;
    const char* const gpus = std::getenv("TANDEM_EMULATED_GPUS");
    start.devices = gpus ? std::atoi(gpus) : 1;
    if (const char* const driver = std::getenv("TANDEM_EMULATED_DRIVER"))
      start.driver_version = std::atoi(driver);
    if (const char* const mib = std::getenv("TANDEM_EMULATED_MEMORY"))
      start.memory_bytes = static_cast<std::size_t>(std::atoi(mib)) << 20;
    // As CUDA reads it: a list of numbers, up to the first that is none of a device's.
    if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
      std::istringstream list(visible);
      for (std::string item; std::getline(list, item, ',');) {
        char* end = nullptr;
        const long number = std::strtol(item.c_str(), &end, 10);
        if (end == item.c_str() || number < 0 || number >= start.devices) break;
        start.numbers.push_back(static_cast<int>(number));
      }
      start.devices = static_cast<int>(start.numbers.size());
    }
    return start;
  }();
  return it;
}

}  // namespace tandem::emulation

namespace tandem::cuda::emulated {

using namespace emulation;

cudaError_t launch(const cudaLaunchConfig_t& config, const char* name, const void* function,
                   std::function<void()> thread) {
  if (const cudaError_t error = driver_state("cudaLaunchKernelExC"); error != cudaSuccess) return error;
  const auto stream = stream_of(config.stream);
  if (!stream || stream->device != current_device) return noted(cudaErrorInvalidResourceHandle);
  if (!launchable(config, function, stream->device)) return noted(cudaErrorInvalidValue);
  GridShape shape;
  shape.blocks[0] = config.gridDim.x;
  shape.blocks[1] = config.gridDim.y;
  shape.blocks[2] = config.gridDim.z;
  shape.threads = static_cast<int>(config.blockDim.x);
  shape.shared_bytes = config.dynamicSmemBytes;
  launch_table.note(name, shape.threads, shape.shared_bytes);
  give(*stream, [shape, thread = std::move(thread), kernel = std::string(name)] {
    const std::lock_guard lock(device_lock());
    const MemoryAccess access;
    run_grid(kernel, shape, thread);
    check_surroundings("kernel " + kernel);
  });
  return cudaSuccess;
}

}  // namespace tandem::cuda::emulated

using namespace tandem::emulation;

extern "C" {

// ---- machine ----

cudaError_t cudaDriverGetVersion(int* version) {
  if (const cudaError_t error = to_inject("cudaDriverGetVersion"); error != cudaSuccess) return noted(error);
  *version = facts().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (const cudaError_t error = to_inject("cudaRuntimeGetVersion"); error != cudaSuccess) return noted(error);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = driver_state("cudaGetDeviceCount"); error != cudaSuccess) return error;
  *count = facts().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = driver_state("cudaSetDevice"); error != cudaSuccess) return error;
  if (device < 0 || device >= facts().devices) return noted(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = driver_state("cudaGetDevice"); error != cudaSuccess) return error;
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = driver_state("cudaGetDeviceProperties"); error != cudaSuccess) return error;
  if (device < 0 || device >= facts().devices) return noted(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = facts().major;
  properties->minor = facts().minor;
  properties->multiProcessorCount = facts().multiprocessors;
  properties->sharedMemPerBlockOptin = facts().shared_bytes;
  properties->sharedMemPerBlock = kSharedUnasked;
  properties->totalGlobalMem = facts().memory_bytes;
  properties->warpSize = 32;
  properties->pciBusID = number_of(device) + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = driver_state("cudaDeviceGetAttribute"); error != cudaSuccess) return error;
  if (device < 0 || device >= facts().devices) return noted(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = facts().major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = facts().minor;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = facts().multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(facts().shared_bytes);
      return cudaSuccess;
    default:
      violation("cudaDeviceGetAttribute is asked for what the emulation does not know");
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (const cudaError_t error = driver_state("cudaDeviceGetPCIBusId"); error != cudaSuccess) return error;
  if (device < 0 || device >= facts().devices) return noted(cudaErrorInvalidDevice);
  const char* const shared = std::getenv("TANDEM_EMULATED_BUS");  // all devices are the same one
  const std::string text = shared ? shared : tandem::cat("0000:0", number_of(device) + 1, ":00.0");
  if (static_cast<int>(text.size()) >= size) return noted(cudaErrorInvalidValue);
  std::strcpy(id, text.c_str());
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = driver_state("cudaDeviceSynchronize"); error != cudaSuccess) return error;
  run_all(current_device);
  return cudaSuccess;
}

// ---- errors ----

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define TANDEM_NAME(name) \
  case name:              \
    return #name;
    TANDEM_NAME(cudaSuccess)
    TANDEM_NAME(cudaErrorInvalidValue)
    TANDEM_NAME(cudaErrorMemoryAllocation)
    TANDEM_NAME(cudaErrorInitializationError)
    TANDEM_NAME(cudaErrorInsufficientDriver)
    TANDEM_NAME(cudaErrorNoDevice)
    TANDEM_NAME(cudaErrorInvalidDevice)
    TANDEM_NAME(cudaErrorECCUncorrectable)
    TANDEM_NAME(cudaErrorInvalidResourceHandle)
    TANDEM_NAME(cudaErrorNotReady)
    TANDEM_NAME(cudaErrorIllegalAddress)
    TANDEM_NAME(cudaErrorLaunchOutOfResources)
    TANDEM_NAME(cudaErrorLaunchFailure)
    TANDEM_NAME(cudaErrorNoKernelImageForDevice)
    TANDEM_NAME(cudaErrorDevicesUnavailable)
#undef TANDEM_NAME
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInitializationError:
      return "initialization error";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources:
      return "too many resources requested for launch";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    default:
      return "unrecognized error code";
  }
}

// ---- memory ----

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = driver_state("cudaMalloc"); error != cudaSuccess) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocate(current_device, bytes);
  return *pointer ? cudaSuccess : noted(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t error = driver_state("cudaFree"); error != cudaSuccess) return error;
  if (!pointer) return cudaSuccess;
  for (int device = 0; device < facts().devices; ++device) run_all(device);
  return release(pointer) ? cudaSuccess : noted(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = driver_state("cudaMallocHost"); error != cudaSuccess) return error;
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*pointer) return noted(cudaErrorMemoryAllocation);
  const std::lock_guard lock(host().lock);
  host().pinned.insert(*pointer);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t error = driver_state("cudaFreeHost"); error != cudaSuccess) return error;
  if (!pointer) return cudaSuccess;
  for (int device = 0; device < facts().devices; ++device) run_all(device);
  const std::lock_guard lock(host().lock);
  if (host().pinned.erase(pointer) == 0) return noted(cudaErrorInvalidValue);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = driver_state("cudaMemGetInfo"); error != cudaSuccess) return error;
  *total = facts().memory_bytes;
  *free = *total - bytes_in_use(current_device);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaMemcpyAsync"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  check_copy(to, from, bytes, kind);
  give(*stream, [to, from, bytes] {
    const std::lock_guard lock(device_lock());
    const MemoryAccess access;
    std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaMemsetAsync"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  check_device_range("cudaMemsetAsync", to, bytes);
  give(*stream, [to, value, bytes] {
    const std::lock_guard lock(device_lock());
    const MemoryAccess access;
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaMemcpy2DAsync"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  if (width > to_pitch || width > from_pitch) return noted(cudaErrorInvalidPitchValue);
  if (width == 0 || height == 0) return cudaSuccess;
  check_copy(to, from, (height - 1) * std::min(to_pitch, from_pitch) + width, kind);
  give(*stream, [=] {
    const std::lock_guard lock(device_lock());
    const MemoryAccess access;
    for (std::size_t row = 0; row < height; ++row)
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                   width);
  });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaMemset2DAsync"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  if (width > pitch) return noted(cudaErrorInvalidPitchValue);
  if (width == 0 || height == 0) return cudaSuccess;
  check_device_range("cudaMemset2DAsync", to, (height - 1) * pitch + width);
  give(*stream, [=] {
    const std::lock_guard lock(device_lock());
    const MemoryAccess access;
    for (std::size_t row = 0; row < height; ++row)
      std::memset(static_cast<char*>(to) + row * pitch, value, width);
  });
  return cudaSuccess;
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  if (const cudaError_t error = driver_state("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
  *stream = make_stream(current_device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = driver_state("cudaDeviceGetStreamPriorityRange"); error != cudaSuccess)
    return error;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  if (const cudaError_t error = driver_state("cudaStreamCreateWithPriority"); error != cudaSuccess)
    return error;
  *stream = make_stream(current_device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaStreamDestroy"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  run_until(*stream, given(*stream));
  forget_stream(handle);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = stream_of(handle);
  if (const cudaError_t error = driver_state("cudaStreamSynchronize"); error != cudaSuccess) {
    if (stream) abandon(*stream);
    return error;
  }
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  run_until(*stream, given(*stream));
  return cudaSuccess;
}

// "Not ready" at least once, and the work is done by the next time it is asked.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t error = driver_state("cudaStreamQuery"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  if (!stream) return noted(cudaErrorInvalidResourceHandle);
  const std::uint64_t place = given(*stream);
  if (is_done(*stream, place)) return cudaSuccess;
  go_on_until(*stream, place);
  return cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int) {
  if (const cudaError_t error = driver_state("cudaStreamWaitEvent"); error != cudaSuccess) return error;
  const auto stream = stream_of(handle);
  const Event* const event = event_of(event_handle);
  if (!stream || !event) return noted(cudaErrorInvalidResourceHandle);
  const Event now = *event;
  if (!now.stream || now.stream == stream) return cudaSuccess;
  give_step(*stream, [now] { return go_on_until(*now.stream, now.place); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  if (const cudaError_t error = driver_state("cudaEventCreateWithFlags"); error != cudaSuccess) return error;
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  const std::lock_guard lock(host().lock);
  host().events[*event] = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  if (const cudaError_t error = driver_state("cudaEventDestroy"); error != cudaSuccess) return error;
  Event* const event = event_of(handle);
  if (!event) return noted(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(host().lock);
  host().events.erase(handle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  if (const cudaError_t error = driver_state("cudaEventRecord"); error != cudaSuccess) return error;
  Event* const event = event_of(handle);
  const auto stream = stream_of(stream_handle);
  if (!event || !stream) return noted(cudaErrorInvalidResourceHandle);
  event->place = given(*stream);
  event->stream = stream;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const cudaError_t error = driver_state("cudaEventSynchronize"); error != cudaSuccess) return error;
  const Event* const event = event_of(handle);
  if (!event) return noted(cudaErrorInvalidResourceHandle);
  if (event->stream) run_until(*event->stream, event->place);
  return cudaSuccess;
}

// Nothing takes time here.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  if (const int code = tandem::emulation::injected("cudaEventElapsedTime"))
    return static_cast<cudaError_t>(code);
  *ms = 0.0f;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (const cudaError_t error = driver_state("cudaEventQuery"); error != cudaSuccess) return error;
  const Event* const event = event_of(handle);
  if (!event) return noted(cudaErrorInvalidResourceHandle);
  if (!event->stream || is_done(*event->stream, event->place)) return cudaSuccess;
  go_on_until(*event->stream, event->place);
  return cudaErrorNotReady;
}

// ---- kernels ----

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = driver_state("cudaFuncSetAttribute"); error != cudaSuccess) return error;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > facts().shared_bytes)
    return noted(cudaErrorInvalidValue);
  const std::lock_guard lock(host().lock);
  host().shared_allowed[{current_device, function}] = value;
  return cudaSuccess;
}

}  // extern "C"
