// The sum over ranks of integers that lie in a CUDA device's memory: a contract without CUDA, NCCL or MPI in
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "kernels/cuda_context.hpp"

namespace tandem {

// All ranks start the same sizes in the same order and finish together; one thread does so (the training
// thread). It ends before the memory that it sums: what frees that would wait for sums which, after an error,
// other ranks never join.
class DeviceReduction {
 public:
  virtual ~DeviceReduction() = default;
  DeviceReduction() = default;
  DeviceReduction(const DeviceReduction&) = delete;
  DeviceReduction& operator=(const DeviceReduction&) = delete;

  // What carries the sum: "NCCL 2.28.9", "MPI, through the host's memory", "one rank: nothing to sum".
  virtual std::string name() const = 0;

  // device_values[i] = sum over ranks of device_values[i] mod 2^64, in place. Returns at once; the sum begins
  // when all that ctx's stream has been given so far has run, and what the stream is given later runs beside
  // it, which must not touch these values before finish(). Several starts may follow one another.
  virtual void start(const CudaContext& ctx, std::span<std::int64_t> device_values) = 0;

  // Returns when every sum that was started is there: what ctx's stream is given from now on sees them.
  // `where` is said in an error: "update 412". Throws CommunicationError where a sum failed or did not end
  // within the limit (the others cannot be asked any more); after that, nothing of this object works.
  virtual void finish(const CudaContext& ctx, std::string_view where) = 0;
};

struct ReductionLimits {
  double start_s = 120;  // for all ranks to join
  // For a sum, from when this rank's own part was there: the other ranks' computing counts, so it is long. A
  // rank that is lost is found much sooner, by the watchdog or the launcher.
  double sum_s = 1800;
};

// Over NCCL. Collective over comm, which must outlive it. Throws kDevice on every rank, saying what to do,
// where this program was built without NCCL, the ranks have different releases of it, or two of them share a
// device; CommunicationError where it fails on the way.
std::unique_ptr<DeviceReduction> nccl_reduction(Communicator& comm, const CudaContext& ctx,
                                                const ReductionLimits& limits = {});

// Over comm, in pieces through page-locked host memory: needs no NCCL, and ranks may share a device. Not
// overlapped: finish() does all of it.
std::unique_ptr<DeviceReduction> host_staged_reduction(Communicator& comm, const CudaContext& ctx);

// For one rank.
std::unique_ptr<DeviceReduction> no_reduction();

}  // namespace tandem
