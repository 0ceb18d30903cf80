// The CUDA device that tests run kernels on: fakes of CUDA's runtime, taken in at the link, whose "device"
// runs each CUDA thread as a fiber of the host.
//
// What it catches ends the program with one line on stderr that begins "emulated CUDA:": a barrier or shuffle
// that not all threads reach, a write outside an allocation, an access to unmapped or freed memory, a host
// access to device memory, a pointer to host memory among a kernel's arguments, a misaligned vector access.
// What it makes visible in results: memory that nobody wrote is NaN (0xFF bytes), shared memory too; work on
// a stream runs when something waits for it and not before; cp.async arrives when it is waited for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tandem::emulation {

// In which order the blocks of a grid and the threads of a block run. Results must not depend on it.
struct Order {
  enum Kind { kForward, kReverse, kShuffled } kind = kForward;
  std::uint64_t seed = 0;
};
void set_order(Order order);
// The three orders of every test of a kernel.
inline constexpr Order kOrders[] = {{Order::kForward, 0}, {Order::kReverse, 0}, {Order::kShuffled, 1}};

// When work given to a stream runs: as late as CUDA may, or at once.
enum class StreamTime { kLate, kAtOnce };
void set_stream_time(StreamTime time);

// What the emulated machine is. TANDEM_EMULATED_GPUS sets the number of devices at the start (default 1), of
// which CUDA_VISIBLE_DEVICES picks some.
struct Facts {
  int devices;
  int driver_version = CUDART_VERSION;  // 0: no driver
  int major = 9, minor = 0;             // compute capability
  std::size_t memory_bytes = std::size_t{4} << 30;
  int multiprocessors = 4;
  // What a block may have on the smallest device of compute capability 8.0.
  std::size_t shared_bytes = std::size_t{163} * 1024;
  std::vector<int> numbers = {};  // of the devices that were picked, in the machine
};
Facts& facts();
int number_of(int device);

// The nth call of the function from now on (1: the next) fails with `code`, whatever library it is of;
// TANDEM_EMULATED_FAIL="cudaMalloc:2:3" does so from the program's start, in every process.
void fail_next(const std::string& function, int code, int nth = 1);
void forget_failures();
// How often each fake has been called since clear_calls().
std::map<std::string, std::int64_t> calls();
void clear_calls();

// ---- for fakes of other libraries ----

// Counts a call; the code that it has to fail with, or 0.
int injected(const char* function);

// Device memory can be accessed by the host while one of these lives.
class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

// A violation where [pointer, pointer + bytes) is not inside one allocation of a device.
void check_device_range(const char* what, const void* pointer, std::size_t bytes);
bool is_device_address(const void* pointer);

// Gives `work` to a stream. It runs, in the stream's order, on the host thread that comes to wait for it, and
// may wait for other host threads; it takes a MemoryAccess where it uses device memory.
void enqueue(cudaStream_t stream, std::function<void()> work);
// The same for work that waits for other processes: it is called again until it says that it is over, and one
// who asks whether the stream is done goes on meanwhile.
void enqueue_step(cudaStream_t stream, std::function<bool()> work);
// The ordinal of a stream's device.
int device_of(cudaStream_t stream);

}  // namespace tandem::emulation
