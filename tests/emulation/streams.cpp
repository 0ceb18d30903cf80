#include "tests/emulation/streams.hpp"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/emulated.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::emulation {

namespace {

struct Streams {
  std::mutex lock;
  std::condition_variable changed;
  std::map<const void*, std::shared_ptr<Stream>> all;
  StreamTime time = StreamTime::kLate;
};

Streams& streams() {
  static auto* const it = new Streams;
  return *it;
}

}  // namespace

void set_stream_time(StreamTime time) {
  const std::lock_guard lock(streams().lock);
  streams().time = time;
}

cudaStream_t make_stream(int device) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  const std::lock_guard lock(streams().lock);
  streams().all[stream.get()] = stream;
  return reinterpret_cast<cudaStream_t>(stream.get());
}

std::shared_ptr<Stream> stream_of(cudaStream_t handle) {
  const std::lock_guard lock(streams().lock);
  const auto found = streams().all.find(handle);
  return found == streams().all.end() ? nullptr : found->second;
}

void forget_stream(cudaStream_t handle) {
  const std::lock_guard lock(streams().lock);
  streams().all.erase(handle);
}

void give(Stream& stream, std::function<void()> work) {
  bool at_once;
  std::uint64_t place;
  {
    const std::lock_guard lock(streams().lock);
    stream.work.push_back(std::move(work));
    place = ++stream.given;
    at_once = streams().time == StreamTime::kAtOnce;
  }
  if (at_once) run_until(stream, place);
}

bool is_done(Stream& stream, std::uint64_t place) {
  const std::lock_guard lock(streams().lock);
  return stream.done >= place;
}

std::uint64_t given(Stream& stream) {
  const std::lock_guard lock(streams().lock);
  return stream.given;
}

void run_until(Stream& stream, std::uint64_t place) {
  std::unique_lock lock(streams().lock);
  while (stream.done < place) {
    if (stream.busy) {
      streams().changed.wait(lock);
      continue;
    }
    const std::function<void()> work = std::move(stream.work.front());
    stream.work.pop_front();
    stream.busy = true;
    lock.unlock();
    work();
    lock.lock();
    stream.busy = false;
    ++stream.done;
    streams().changed.notify_all();
  }
}

void run_all(int device) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(streams().lock);
    for (const auto& [handle, stream] : streams().all)
      if (stream->device == device) all.push_back(stream);
  }
  for (const auto& stream : all) run_until(*stream, given(*stream));
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const auto found = stream_of(stream);
  if (!found) cuda::emulated::violation("work is given to a stream that does not exist");
  give(*found, std::move(work));
}

int device_of(cudaStream_t stream) {
  const auto found = stream_of(stream);
  return found ? found->device : -1;
}

}  // namespace tandem::emulation
