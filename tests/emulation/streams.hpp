// Work given to a device, and events, which mark a place in a stream's work.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace tandem::emulation {

struct Stream : std::enable_shared_from_this<Stream> {
  int device = 0;
  std::deque<std::function<bool()>> work;  // each says whether it is over, or has to be called again
  std::uint64_t given = 0, done = 0;
  bool busy = false;  // a host thread runs its front
};

struct Event {
  std::shared_ptr<Stream> stream;  // null: never recorded, which counts as complete
  std::uint64_t place = 0;         // complete when the stream has done so much
};

cudaStream_t make_stream(int device);
// Null where it is none of ours.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
void forget_stream(cudaStream_t handle);

void give(Stream& stream, std::function<void()> work);
void give_step(Stream& stream, std::function<bool()> work);
bool is_done(Stream& stream, std::uint64_t place);
std::uint64_t given(Stream& stream);
// Runs the stream's work up to the place, on this host thread; go_on_until() only as far as it has not to
// wait, and says whether it came there.
void run_until(Stream& stream, std::uint64_t place);
bool go_on_until(Stream& stream, std::uint64_t place);
// What a device does that has failed: nothing more of the stream's work.
void abandon(Stream& stream);
// All work of all streams of a device.
void run_all(int device);

}  // namespace tandem::emulation
