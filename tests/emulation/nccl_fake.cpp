// The part of NCCL that comm/nccl calls, between the processes of this machine: they meet in a file that all
// of them map. As with the real one, calls on a communicator that does not block return before they have
// happened, and a sum waits on its stream for its peers, for ever where one is gone.
//
// What can be planted (emulation::fail_next, TANDEM_EMULATED_FAIL): the name of a function; "nccl: async
// error", what ncclCommGetAsyncError reports from then on; "nccl lost contribution", a sum in which this
// rank counts as 0; "nccl abort hangs". TANDEM_EMULATED_NCCL: the version that is loaded.
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>

#include "kernels/cuda/emulated.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/emulation.hpp"

namespace {

using tandem::emulation::injected;

constexpr int kMaxRanks = 16;
constexpr std::size_t kPiece = std::size_t{1} << 16;  // values that a rank shows at a time

struct Meeting {
  std::atomic<int> joined{0};
  std::atomic<int> here{0};             // at the barrier
  std::atomic<std::uint64_t> round{0};  // barriers passed
  std::atomic<std::uint64_t> counts[kMaxRanks]{};
  std::uint64_t values[kMaxRanks][kPiece];
};

bool fails(const char* call, ncclResult_t& result) {
  result = static_cast<ncclResult_t>(injected(call));
  return result != ncclSuccess;
}

}  // namespace

// One of NCCL's communicators, of this process.
struct ncclComm {
  int rank = 0, size = 1;
  bool blocking = true, in_progress = false;
  ncclResult_t error = ncclSuccess;
  std::string path;
  Meeting* meeting = nullptr;
  std::atomic<bool> aborted{false};

  ~ncclComm() {
    if (meeting) munmap(meeting, sizeof(Meeting));
  }
  bool all_joined() const { return meeting->joined.load() == size; }
};

namespace {

// A sum on its way: goes on as far as its peers are, whenever it is asked.
class Sum {
 public:
  Sum(std::shared_ptr<ncclComm> comm, const void* from, void* to, std::size_t count)
      : comm_(std::move(comm)),
        from_(static_cast<const std::uint64_t*>(from)),
        to_(static_cast<std::uint64_t*>(to)),
        count_(count),
        lost_(injected("nccl lost contribution") != 0) {}

  // Whether it is there.
  bool go_on() {
    if (comm_->aborted) return true;
    Meeting& meeting = *comm_->meeting;
    while (begin_ < count_) {
      const std::size_t n = std::min(kPiece, count_ - begin_);
      if (step_ == kShow) {
        const tandem::emulation::MemoryAccess access;
        std::memcpy(meeting.values[comm_->rank], from_ + begin_, n * sizeof(std::uint64_t));
        if (lost_) std::memset(meeting.values[comm_->rank], 0, n * sizeof(std::uint64_t));
        meeting.counts[comm_->rank] = count_;
        arrive(), step_ = kAdd;
      }
      if (step_ == kAdd) {
        if (!met()) return false;
        for (int rank = 0; rank < comm_->size; ++rank)
          if (meeting.counts[rank] != count_)
            tandem::cuda::emulated::violation("ncclAllReduce: ranks sum different numbers of values");
        const tandem::emulation::MemoryAccess access;
        for (std::size_t i = 0; i < n; ++i) {
          std::uint64_t sum = 0;
          for (int rank = 0; rank < comm_->size; ++rank) sum += meeting.values[rank][i];
          to_[begin_ + i] = sum;
        }
        arrive(), step_ = kLeave;
      }
      if (!met()) return false;
      step_ = kShow;
      begin_ += n;
    }
    return true;
  }

 private:
  void arrive() {
    round_ = comm_->meeting->round.load();
    if (comm_->meeting->here.fetch_add(1) + 1 == comm_->size) {
      comm_->meeting->here = 0;
      ++comm_->meeting->round;
    }
  }
  bool met() const { return comm_->meeting->round.load() != round_; }

  std::shared_ptr<ncclComm> comm_;
  const std::uint64_t* from_;
  std::uint64_t* to_;
  std::size_t count_, begin_ = 0;
  bool lost_;
  enum { kShow, kAdd, kLeave } step_ = kShow;
  std::uint64_t round_ = 0;
};

using Shared = std::shared_ptr<ncclComm>;
Shared& shared(ncclComm_t comm) { return *reinterpret_cast<Shared*>(comm); }

// A call that does not block answers so, and ncclCommGetAsyncError the next time that all is well.
ncclResult_t begun(ncclComm& comm) {
  if (comm.blocking) return ncclSuccess;
  comm.in_progress = true;
  return ncclInProgress;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  ncclResult_t result;
  if (fails("ncclGetVersion", result)) return result;
  const char* const text = std::getenv("TANDEM_EMULATED_NCCL");
  *version = text ? std::atoi(text) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ncclResult_t result;
  if (fails("ncclGetUniqueId", result)) return result;
  const char* const folder = std::getenv("TMPDIR");
  std::string path = tandem::cat(folder ? folder : "/tmp", "/emulated-nccl-XXXXXX");
  if (path.size() >= sizeof id->internal) return ncclSystemError;
  const int file = mkstemp(path.data());
  if (file < 0 || ftruncate(file, sizeof(Meeting)) != 0) return ncclSystemError;
  close(file);
  *id = {};
  std::memcpy(id->internal, path.c_str(), path.size() + 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ncclResult_t result;
  if (fails("ncclCommInitRankConfig", result)) return result;
  if (size > kMaxRanks || rank < 0 || rank >= size || config->magic != 0xcafebeef) return ncclInvalidArgument;
  auto comm = std::make_shared<ncclComm>();
  comm->rank = rank, comm->size = size, comm->path = id.internal;
  comm->blocking = config->blocking != 0;
  const int file = open(id.internal, O_RDWR | O_CLOEXEC);
  if (file < 0) return ncclSystemError;
  void* const memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  comm->meeting = static_cast<Meeting*>(memory);  // a new file's zeros are its start
  if (++comm->meeting->joined == size) unlink(id.internal);
  while (comm->blocking && !comm->all_joined()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  *out = reinterpret_cast<ncclComm_t>(new Shared(comm));
  return begun(*comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  ncclResult_t result;
  if (fails("ncclCommGetAsyncError", result)) return result;
  ncclComm& comm = *shared(handle);
  if (fails("nccl async error", result)) comm.error = result;
  *state = comm.error != ncclSuccess                ? comm.error
           : comm.in_progress && !comm.all_joined() ? ncclInProgress
                                                    : ncclSuccess;
  if (*state != ncclInProgress) comm.in_progress = false;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t handle, cudaStream_t stream) {
  ncclResult_t result;
  if (fails("ncclAllReduce", result)) return result;
  const Shared& comm = shared(handle);
  if (comm->in_progress) return ncclInvalidUsage;  // the call before was not waited for
  if ((type != ncclInt64 && type != ncclUint64) || op != ncclSum) return ncclInvalidArgument;
  tandem::emulation::check_device_range("ncclAllReduce", from, count * sizeof(std::int64_t));
  tandem::emulation::check_device_range("ncclAllReduce", to, count * sizeof(std::int64_t));
  tandem::emulation::enqueue_step(
      stream, [sum = std::make_shared<Sum>(comm, from, to, count)] { return sum->go_on(); });
  return begun(*comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ncclResult_t result;
  if (fails("ncclCommFinalize", result)) return result;
  return begun(*shared(handle));
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  ncclResult_t result;
  if (fails("ncclCommDestroy", result)) return result;
  delete &shared(handle);
  return ncclSuccess;
}

// Its kernels end, whatever they have done.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (injected("nccl abort hangs")) std::this_thread::sleep_for(std::chrono::hours(1));
  ncclResult_t result;
  if (fails("ncclCommAbort", result)) return result;
  shared(handle)->aborted = true;
  delete &shared(handle);
  return ncclSuccess;
}

}  // extern "C"
