// Sums of device memory that go through the host's, and the one that has nothing to sum.
#include <algorithm>
#include <utility>
#include <vector>

#include "comm/device_reduction.hpp"
#include "comm/nccl/side_stream.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

// Two pieces of page-locked memory: while one is summed over the ranks, the next is fetched.
constexpr std::size_t kPiece = (std::size_t{8} << 20) / sizeof(std::int64_t);

class Piece {
 public:
  Piece() {
    cuda::check(cudaMallocHost(&data_, kPiece * sizeof(std::int64_t)), "cudaMallocHost");
    if (const cudaError_t error =
            cudaEventCreateWithFlags(&fetched_, cudaEventDisableTiming | cudaEventBlockingSync);
        error != cudaSuccess) {
      cudaFreeHost(data_);
      cuda::check(error, "cudaEventCreateWithFlags");
    }
  }
  ~Piece() {
    cudaEventDestroy(fetched_);
    cudaFreeHost(data_);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void fetch(std::span<std::int64_t> from, cudaStream_t stream) {
    device_ = from;
    cuda::check(cudaMemcpyAsync(data_, from.data(), from.size_bytes(), cudaMemcpyDeviceToHost, stream),
                "cudaMemcpyAsync to the host");
    cuda::check(cudaEventRecord(fetched_, stream), "cudaEventRecord");
  }
  std::span<std::int64_t> wait() {
    cuda::check(cudaEventSynchronize(fetched_), "cudaEventSynchronize");
    return {static_cast<std::int64_t*>(data_), device_.size()};
  }
  void bring_back(cudaStream_t stream) {
    cuda::check(cudaMemcpyAsync(device_.data(), data_, device_.size_bytes(), cudaMemcpyHostToDevice, stream),
                "cudaMemcpyAsync to the device");
  }

 private:
  void* data_ = nullptr;
  cudaEvent_t fetched_ = nullptr;
  std::span<std::int64_t> device_;
};

class HostStagedReduction final : public DeviceReduction {
 public:
  HostStagedReduction(Communicator& comm, const CudaContext& ctx) : comm_(comm), stream_(ctx) {}
  // The last pieces may be on their way still.
  ~HostStagedReduction() override { cudaStreamSynchronize(stream_.get()); }

  std::string name() const override { return "MPI, through the host's memory"; }

  void start(const CudaContext& ctx, std::span<std::int64_t> values) override {
    stream_.follow(ctx);
    started_.push_back(values);
  }

  void finish(const CudaContext& ctx, std::string_view where) override {
    std::size_t total = 0;
    for (const auto& values : started_) total += values.size();
    try {
      for (const auto& values : std::exchange(started_, {})) sum(values);
      stream_.lead(ctx);
    } catch (const std::exception& error) {
      // Whatever it was, the other ranks wait in the middle of a sum.
      throw CommunicationError(cat(error.what(), " | all_reduce(", total, ") ", where));
    }
  }

 private:
  void sum(std::span<std::int64_t> values) {
    const auto piece = [&](std::size_t begin) {
      return values.subspan(begin, std::min(kPiece, values.size() - begin));
    };
    if (!values.empty()) pieces_[0].fetch(piece(0), stream_.get());
    int now = 0;
    for (std::size_t begin = 0; begin < values.size(); begin += kPiece, now = 1 - now) {
      if (begin + kPiece < values.size()) pieces_[1 - now].fetch(piece(begin + kPiece), stream_.get());
      comm_.all_reduce_sum(pieces_[now].wait());
      pieces_[now].bring_back(stream_.get());
    }
  }

  Communicator& comm_;
  cuda::SideStream stream_;
  Piece pieces_[2];
  std::vector<std::span<std::int64_t>> started_;
};

class NoReduction final : public DeviceReduction {
 public:
  std::string name() const override { return "one rank: nothing to sum"; }
  void start(const CudaContext&, std::span<std::int64_t>) override {}
  void finish(const CudaContext&, std::string_view) override {}
};

}  // namespace

std::unique_ptr<DeviceReduction> host_staged_reduction(Communicator& comm, const CudaContext& ctx) {
  return agree(comm, [&]() -> std::unique_ptr<DeviceReduction> {
    return std::make_unique<HostStagedReduction>(comm, ctx);
  });
}

std::unique_ptr<DeviceReduction> no_reduction() { return std::make_unique<NoReduction>(); }

}  // namespace tandem
