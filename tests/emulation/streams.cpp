#include "tests/emulation/streams.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
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
  give_step(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

void give_step(Stream& stream, std::function<bool()> work) {
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

namespace {

bool run(Stream& stream, std::uint64_t place, bool waits) {
  if (is_done(stream, place)) return true;
  const MemoryAccess access;  // for all of it: to open and close the memory costs more than a small kernel
  std::unique_lock lock(streams().lock);
  while (stream.done < place) {
    if (stream.busy) {
      if (!waits) return false;
      streams().changed.wait(lock);
      continue;
    }
    std::function<bool()> work = std::move(stream.work.front());
    stream.work.pop_front();
    stream.busy = true;
    lock.unlock();
    const bool over = work();
    lock.lock();
    stream.busy = false;
    if (over)
      ++stream.done;
    else
      stream.work.push_front(std::move(work));
    streams().changed.notify_all();
    if (over) continue;
    if (!waits) return false;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  return true;
}

}  // namespace

void run_until(Stream& stream, std::uint64_t place) { run(stream, place, true); }
bool go_on_until(Stream& stream, std::uint64_t place) { return run(stream, place, false); }

void abandon(Stream& stream) {
  std::unique_lock lock(streams().lock);
  while (stream.busy) streams().changed.wait(lock);
  stream.work.clear();
  stream.done = stream.given;
  streams().changed.notify_all();
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

void enqueue_step(cudaStream_t stream, std::function<bool()> work) {
  const auto found = stream_of(stream);
  if (!found) cuda::emulated::violation("work is given to a stream that does not exist");
  give_step(*found, std::move(work));
}

int device_of(cudaStream_t stream) {
  const auto found = stream_of(stream);
  return found ? found->device : -1;
}

}  // namespace tandem::emulation
