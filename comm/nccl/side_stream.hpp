// A stream beside a context's own, and the places where each waits for the other.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/context_members.hpp"

namespace tandem::cuda {

class SideStream {
 public:
  explicit SideStream(const CudaContext& ctx) {
    try {
      check(cudaSetDevice(ctx.device()), "cudaSetDevice");
      // Its blocks go first: each rank's delay would be all ranks'.
      int least = 0, greatest = 0;
      check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
      check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
            "cudaStreamCreateWithPriority");
      for (cudaEvent_t* event : {&given_, &done_})
        check(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync),
              "cudaEventCreateWithFlags");
    } catch (...) {
      end();
      throw;
    }
  }
  ~SideStream() { end(); }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t get() const { return stream_; }

  // What this stream is given from now on comes after all that ctx's has been given so far.
  void follow(const CudaContext& ctx) {
    check(cudaEventRecord(given_, stream_of(ctx)), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream_, given_, 0), "cudaStreamWaitEvent");
  }
  // What ctx's stream is given from now on comes after all that this one has been given so far.
  void lead(const CudaContext& ctx) {
    mark_done();
    check(cudaStreamWaitEvent(stream_of(ctx), done_, 0), "cudaStreamWaitEvent");
  }
  void mark_done() { check(cudaEventRecord(done_, stream_), "cudaEventRecord"); }

  // Whether what ctx's stream had been given at the last follow() has run; what this one had at mark_done().
  bool followed() const { return is_there(given_); }
  bool done() const { return is_there(done_); }

 private:
  static bool is_there(cudaEvent_t event) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // the runtime keeps it as if it were an error
      return false;
    }
    check(state, "cudaEventQuery");
    return true;
  }
  void end() {
    for (const cudaEvent_t event : {given_, done_})
      if (event) cudaEventDestroy(event);
    if (stream_) cudaStreamDestroy(stream_);
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t given_ = nullptr, done_ = nullptr;
};

}  // namespace tandem::cuda
