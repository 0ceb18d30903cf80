// Sums over NCCL. Its kernels wait for a lost peer for ever, and inside a node it often knows of no error: so
// no call here waits without a limit. The communicator is one that does not block, and the host looks at the
// stream and at NCCL's own error, with short sleeps.
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_reduction.hpp"
#include "comm/nccl/nccl_version.hpp"
#include "comm/nccl/side_stream.hpp"
#include "comm/watchdog.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

[[noreturn]] void fail_nccl(ncclResult_t result, const char* call = nullptr) {
  throw Error(ErrorKind::kDevice,
              cat("nccl: ", ncclGetErrorString(result), call ? cat(" (", call, ")") : ""));
}

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) fail_nccl(result, call);
}

// Short sleeps first, for most waits are short.
class Patience {
 public:
  explicit Patience(double limit_s) : limit_s_(limit_s) {}
  // Throws where the limit is over.
  void sleep(const char* what) {
    const double waited_s = now_s() - start_s_;
    if (waited_s > limit_s_)
      throw Error(ErrorKind::kDevice, cat("nccl: no end of ", what, " after ", limit_s_, " s"));
    std::this_thread::sleep_for(std::chrono::microseconds(waited_s < 0.05 ? 20 : waited_s < 10 ? 100 : 1000));
  }

 private:
  double limit_s_, start_s_ = now_s();
};

class NcclReduction final : public DeviceReduction {
 public:
  NcclReduction(Communicator& comm, const CudaContext& ctx, const ReductionLimits& limits)
      : comm_(comm), limits_(limits), stream_(ctx) {}

  // After agreeing on the id, so ranks wait for one another here.
  void join(const ncclUniqueId& id) {
    guarded("joining the ranks", [&] {
      const InCollective waits(comm_.waiting(), "nccl: joining the ranks", 0);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      settle(ncclCommInitRankConfig(&nccl_, comm_.size(), id, comm_.rank(), &config),
             "ncclCommInitRankConfig");
    });
  }

  ~NcclReduction() override {
    if (!nccl_) return;
    // Sums that nobody finished may never be joined by the other ranks.
    if (started_ > 0 || std::uncaught_exceptions() > exceptions_) {
      abort();
      return;
    }
    try {
      const InCollective waits(comm_.waiting(), "nccl: leaving", 0);
      settle(ncclCommFinalize(nccl_), "ncclCommFinalize");
      ncclCommDestroy(std::exchange(nccl_, nullptr));  // all is done: an error has no one to go to
    } catch (const Error&) {
      abort();
    }
  }

  std::string name() const override {
    const int v = cuda::nccl_version();
    return cat("NCCL ", v / 10000, ".", v / 100 % 100, ".", v % 100);
  }

  void start(const CudaContext& ctx, std::span<std::int64_t> values) override {
    if (values.empty()) return;
    started_ += values.size();
    const std::int64_t update = comm_.waiting() ? comm_.waiting()->update() : 0;
    guarded(cat("all_reduce(", values.size(), ")", update > 0 ? cat(" update ", update) : ""), [&] {
      require_joined();
      const InCollective waits(comm_.waiting(), "nccl: starting a sum", values.size());
      stream_.follow(ctx);
      // Unsigned, because sums wrap.
      settle(ncclAllReduce(values.data(), values.data(), values.size(), ncclUint64, ncclSum, nccl_,
                           stream_.get()),
             "ncclAllReduce");
    });
  }

  void finish(const CudaContext& ctx, std::string_view where) override {
    if (started_ == 0) return;
    const std::size_t count = std::exchange(started_, 0);
    guarded(cat("all_reduce(", count, ") ", where), [&] {
      require_joined();
      stream_.lead(ctx);
      // This rank's own computing is no waiting for others.
      for (Patience patience(limits_.sum_s); !stream_.followed(); patience.sleep("this GPU's own work"))
        check_health();
      const InCollective waits(comm_.waiting(), "nccl all_reduce", count);
      for (Patience patience(limits_.sum_s); !stream_.done(); patience.sleep("the sum")) check_health();
      check_health();
    });
  }

 private:
  void require_joined() const {
    if (!nccl_) throw Error(ErrorKind::kInternal, "nccl: used after it had failed");
  }

  // What NCCL's threads have met since they were last asked.
  void check_health() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(nccl_, &state), "ncclCommGetAsyncError");
    if (state != ncclSuccess && state != ncclInProgress) fail_nccl(state);
  }

  // A call that does not block may go on in the background.
  void settle(ncclResult_t result, const char* call) const {
    for (Patience patience(limits_.start_s); result == ncclInProgress; patience.sleep(call)) {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(nccl_, &state), "ncclCommGetAsyncError");
      result = state;
      if (result != ncclInProgress) break;
    }
    check(result, call);
  }

  // After a failure on this rank the others wait in the middle of something: only the job's end helps them.
  void guarded(const std::string& what, const std::function<void()>& work) {
    try {
      work();
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception& error) {
      std::string text = error.what();
      if (nccl_) {
        const char* const more = ncclGetLastError(nccl_);
        if (more && *more) text += cat(": ", more);
      }
      const std::string line = cat(text, " | ", what);
      abort(line);
      throw CommunicationError(line);
    }
  }

  // Lets NCCL's kernels go, so that what frees device memory later does not wait for them. It may hang itself
  // where a peer is gone: then the process ends, as the caller is about to.
  void abort(const std::string& line = "nccl: left by an error") {
    const ncclComm_t nccl = std::exchange(nccl_, nullptr);
    if (!nccl) return;
    const TimeLimit limit(cat("[rank ", comm_.rank(), "/", comm_.size(), "] ", line, "; ncclCommAbort hangs"),
                          kAbortLimit);
    ncclCommAbort(nccl);
  }
  static constexpr double kAbortLimit = 10;

  Communicator& comm_;
  ReductionLimits limits_;
  cuda::SideStream stream_;
  ncclComm_t nccl_ = nullptr;
  std::size_t started_ = 0;  // values since the last finish()
  int exceptions_ = std::uncaught_exceptions();
};

// Before NCCL finds it in its own words, and only on some ranks.
void require_own_devices(Communicator& comm, const CudaContext& ctx) {
  std::array<char, 32> mine{};
  agree(comm, [&] {
    cuda::check(cudaDeviceGetPCIBusId(mine.data(), mine.size(), ctx.device()), "cudaDeviceGetPCIBusId");
  });
  const std::unique_ptr<Communicator> node = comm.node();
  const std::vector<std::string> all = node->all_gather_text(mine.data());
  const auto sharers = std::count(all.begin(), all.end(), std::string(mine.data()));
  agree(comm, [&] {
    if (sharers > 1)
      throw Error(ErrorKind::kDevice, cat(sharers, " ranks compute on the GPU at PCI ", mine.data(),
                                          ", over which NCCL cannot sum: give each rank its own, or let the "
                                          "sums go over MPI (gpu = shared)"));
  });
}

}  // namespace

namespace cuda {
int nccl_built_version() { return NCCL_VERSION_CODE; }
int nccl_version() {
  int version = 0;
  tandem::check(ncclGetVersion(&version), "ncclGetVersion");
  return version;
}
}  // namespace cuda

std::unique_ptr<DeviceReduction> nccl_reduction(Communicator& comm, const CudaContext& ctx,
                                                const ReductionLimits& limits) {
  require_equal(comm, "NCCL's version",
                static_cast<std::uint64_t>(agree(comm, [] { return cuda::nccl_version(); })));
  require_own_devices(comm, ctx);
  ncclUniqueId id{};
  auto reduction = agree(comm, [&] {
    if (comm.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return std::make_unique<NcclReduction>(comm, ctx, limits);
  });
  comm.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  reduction->join(id);
  return reduction;
}

}  // namespace tandem
