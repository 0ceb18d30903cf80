// What the ranks of a run exchange: sums of integers, small gathers, agreements. Never floats: a sum of
// floats would depend on the number of ranks (DESIGN: the world size is invisible).
//
// Every function is collective: all ranks call it, in the same order, from one thread (the training thread).
// A buffer belongs to the communicator during the call only. Sizes are in elements of the type named.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/base/error.hpp"

namespace tandem {

class Waiting;  // watchdog.hpp

// Communication itself failed on this rank. The others cannot be asked any more, so agree() lets it through:
// the caller ends the whole job (the program: MPI_Abort; never MPI_Finalize, which would wait for the
// others).
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& text) : Error(ErrorKind::kDevice, text) {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // values[i] = sum over ranks of values[i] mod 2^64, in place, the same on every rank. All ranks give the
  // same size.
  virtual void all_reduce_sum(std::span<std::int64_t> values) = 0;

  // all = the ranks' `mine` one after the other, in rank order; all ranks give the same size; all.size() =
  // size() * mine.size(), at most 2 GiB.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  // The ranks' texts in rank order, of any lengths (2 GiB together).
  virtual std::vector<std::string> all_gather_text(std::string_view mine) = 0;

  // `bytes` of rank `root` replace those of the others; all ranks give the same size.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  // `bytes` of rank `from` replace those of rank `to`, which gives the same size; the others pass by. Nothing
  // happens where they are one rank.
  virtual void transfer(std::span<std::byte> bytes, int from, int to) = 0;

  virtual void barrier() = 0;

  // What is said of a collective that never ends: the update it belongs to.
  virtual void at_update(std::int64_t) {}

  // Where one who waits for the ranks elsewhere (NCCL) tells the watchdog so; null where there is none.
  virtual Waiting* waiting() { return nullptr; }

  // The ranks that share this rank's memory (its node), numbered in the order of their ranks here.
  virtual std::unique_ptr<Communicator> node() = 0;

  std::uint64_t all_reduce_sum(std::uint64_t value);

  // One trivially copyable value of each rank, in rank order. T must have no padding bytes.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather_value(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
};

// A world of one rank; needs no MPI.
class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(std::span<std::int64_t>) override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  std::vector<std::string> all_gather_text(std::string_view mine) override { return {std::string(mine)}; }
  void broadcast(std::span<std::byte> bytes, int root) override;
  void transfer(std::span<std::byte> bytes, int from, int to) override;
  void barrier() override {}
  std::unique_ptr<Communicator> node() override { return std::make_unique<SingleCommunicator>(); }
  using Communicator::all_reduce_sum;
};

// What one rank brings to an agreement: no failure, or the kind, text and first rank of one.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  int rank = 0;
  std::string text;
};

// The failure that the exception now being handled stands for. Rethrows a CommunicationError.
Failure failure_of_current_exception(int rank);

// Throws AgreedError on every rank where any rank brought a failure: kind and text of the lowest failing
// rank's.
void agree_on(Communicator& comm, const std::optional<Failure>& mine);

// Runs `work` on this rank and returns its result; but if it throws on any rank, every rank throws the same
// AgreedError. So no rank waits for one that has given up: every phase that can fail on one rank alone runs
// inside an agree. `work` may hold collectives (all ranks reach them, or fail in an inner agree alike).
template <class Work>
std::invoke_result_t<Work> agree(Communicator& comm, Work&& work) {
  using Result = std::invoke_result_t<Work>;
  std::optional<Failure> failure;
  if constexpr (std::is_void_v<Result>) {
    try {
      std::invoke(std::forward<Work>(work));
    } catch (...) {
      failure = failure_of_current_exception(comm.rank());
    }
    agree_on(comm, failure);
  } else {
    std::optional<Result> result;
    try {
      result.emplace(std::invoke(std::forward<Work>(work)));
    } catch (...) {
      failure = failure_of_current_exception(comm.rank());
    }
    agree_on(comm, failure);
    return std::move(*result);
  }
}

// Throws AgreedError{kind} on every rank unless all ranks give the same value: the text says `name`, and
// which ranks have which value ("ranks 0-2: a1b2; rank 3: a1b3").
void require_equal(Communicator& comm, std::string_view name, std::string_view value,
                   ErrorKind kind = ErrorKind::kDevice);
void require_equal(Communicator& comm, std::string_view name, std::uint64_t value,
                   ErrorKind kind = ErrorKind::kDevice);

// {0, 1, 2, 5} as "0-2,5"; the numbers ascend.
std::string ranges_text(std::span<const int> numbers);

}  // namespace tandem
