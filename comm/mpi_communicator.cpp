#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>

#include "src/base/text.hpp"

namespace tandem {
namespace {

// One piece of an all-reduce: in one piece of 160 MB the library's temporaries cost 15 times the time in page
// faults.
constexpr std::size_t kChunk = (std::size_t{1} << 20) / sizeof(std::int64_t);
constexpr std::size_t kMaxCount = std::numeric_limits<int>::max();

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return cat("MPI error ", code);
  return {text, static_cast<std::size_t>(length)};
}

// What the caller handed over does not fit the collective; found before any rank waits for another.
[[noreturn]] void misuse(const std::string& text) { throw Error(ErrorKind::kInternal, text); }

int exceptions_now() { return std::uncaught_exceptions(); }

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm host, WatchdogLimits limits) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) {
    misuse("a communicator needs MPI between MPI_Init_thread and MPI_Finalize, which the host program calls");
  }
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_FUNNELED) {
    throw Error(
        ErrorKind::kDevice,
        "MPI was initialised for one thread only; call MPI_Init_thread with MPI_THREAD_FUNNELED or more");
  }
  int host_rank = 0;
  check(MPI_Comm_rank(host, &host_rank), "MPI_Comm_rank");
  const StartLimit limit("MPI's first collective", limits.start_s, host_rank);
  MPI_Comm own = MPI_COMM_NULL;
  check(MPI_Comm_dup(host, &own), "MPI_Comm_dup");
  adopt(own);
  if (size_ == 1) return;
  auto watchdog = std::make_shared<Watchdog>(rank_, limits);
  // 0: no watchdog is wanted. Rank 0 decides, for not every launcher hands variables to all nodes.
  std::uint64_t job = 0;
  const char* const wanted = std::getenv("TANDEM_WATCHDOG");
  if (rank_ == 0 && !(wanted && std::string_view(wanted) == "0"))
    job = (std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()) | 1;
  broadcast(std::as_writable_bytes(std::span(&job, 1)), 0);
  if (job == 0) return;
  watchdog->start(all_gather_text(watchdog->address()), job);
  watchdog_ = std::move(watchdog);
}

MpiCommunicator::~MpiCommunicator() {
  if (comm_ == MPI_COMM_NULL || failed_ || exceptions_now() > exceptions_) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm_);
}

void MpiCommunicator::adopt(MPI_Comm own) {
  comm_ = own;
  exceptions_ = exceptions_now();
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

void MpiCommunicator::check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  failed_ = true;
  throw CommunicationError(cat(call, " failed on rank ", rank_, " of ", size_, ": ", error_text(code)));
}

void MpiCommunicator::all_reduce_sum(std::span<std::int64_t> values) {
  const InCollective waits(waiting(), "all_reduce_sum", values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += kChunk) {
    const std::size_t n = std::min(kChunk, values.size() - begin);
    // Unsigned, because sums wrap.
    const int code =
        MPI_Allreduce(MPI_IN_PLACE, values.data() + begin, static_cast<int>(n), MPI_UINT64_T, MPI_SUM, comm_);
    if (code != MPI_SUCCESS) {
      check(code, cat("all_reduce_sum(", values.size(), " int64, at ", begin, ")"));
    }
    waits.goes_on();
  }
}

void MpiCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto size = static_cast<std::size_t>(size_);
  if (all.size() != mine.size() * size || all.size() > kMaxCount) {
    misuse(cat("all_gather of ", mine.size(), " bytes from each of ", size_, " ranks into ", all.size(),
               " bytes (at most ", kMaxCount, ")"));
  }
  const InCollective waits(waiting(), "all_gather", mine.size());
  const int n = static_cast<int>(mine.size());
  check(MPI_Allgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, comm_),
        cat("all_gather(", n, " bytes of each rank)"));
}

std::vector<std::string> MpiCommunicator::all_gather_text(std::string_view mine) {
  const std::vector<std::uint64_t> lengths = all_gather_value(static_cast<std::uint64_t>(mine.size()));
  std::vector<int> counts, offsets;
  std::uint64_t total = 0;
  for (const std::uint64_t length : lengths) {
    if (length > kMaxCount - total) misuse(cat("all_gather_text of more than ", kMaxCount, " bytes"));
    counts.push_back(static_cast<int>(length));
    offsets.push_back(static_cast<int>(total));
    total += length;
  }
  std::string all(total, '\0');
  const InCollective waits(waiting(), "all_gather_text", total);
  check(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), counts.data(),
                       offsets.data(), MPI_BYTE, comm_),
        cat("all_gather_text(", mine.size(), " of ", total, " bytes)"));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(counts[rank])));
  }
  return texts;
}

void MpiCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  const InCollective waits(waiting(), "broadcast", bytes.size());
  for (std::size_t begin = 0; begin < bytes.size(); begin += kMaxCount) {
    const std::size_t n = std::min(kMaxCount, bytes.size() - begin);
    check(MPI_Bcast(bytes.data() + begin, static_cast<int>(n), MPI_BYTE, root, comm_),
          cat("broadcast(", bytes.size(), " bytes, from rank ", root, ")"));
    waits.goes_on();
  }
}

void MpiCommunicator::transfer(std::span<std::byte> bytes, int from, int to) {
  if (from < 0 || from >= size_ || to < 0 || to >= size_)
    misuse(cat("transfer from rank ", from, " to rank ", to, " of ", size_));
  if (from == to || (rank_ != from && rank_ != to)) return;
  constexpr int kTag = 1;
  const InCollective waits(waiting(), "transfer", bytes.size());
  for (std::size_t begin = 0; begin < bytes.size(); begin += kMaxCount) {
    const int n = static_cast<int>(std::min(kMaxCount, bytes.size() - begin));
    const int code = rank_ == from
                         ? MPI_Send(bytes.data() + begin, n, MPI_BYTE, to, kTag, comm_)
                         : MPI_Recv(bytes.data() + begin, n, MPI_BYTE, from, kTag, comm_, MPI_STATUS_IGNORE);
    check(code, cat("transfer(", bytes.size(), " bytes, from rank ", from, " to rank ", to, ")"));
    waits.goes_on();
  }
}

void MpiCommunicator::barrier() {
  const InCollective waits(waiting(), "barrier", 0);
  check(MPI_Barrier(comm_), "barrier()");
}

void MpiCommunicator::at_update(std::int64_t update) {
  if (watchdog_) watchdog_->waiting().at_update(update);
}

Waiting* MpiCommunicator::waiting() { return watchdog_ ? &watchdog_->waiting() : nullptr; }

std::unique_ptr<Communicator> MpiCommunicator::node() {
  MPI_Comm shared = MPI_COMM_NULL;
  const InCollective waits(waiting(), "node", 0);
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &shared), "node()");
  std::unique_ptr<MpiCommunicator> node(new MpiCommunicator());
  node->adopt(shared);
  node->watchdog_ = watchdog_;
  return node;
}

}  // namespace tandem
