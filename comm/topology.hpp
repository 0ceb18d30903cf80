// Which CPUs each rank of a node computes on, and pinning its threads to them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace tandem {

// A CPU as the operating system numbers it; `core` is equal for hyper-threads of one core and orders the
// cores of the node so that neighbours share a socket.
struct Cpu {
  int id = 0;
  int core = 0;
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

// The CPUs this process may run on (sched_getaffinity of the calling thread), in order of (core, id).
// Call it before pin_threads. Throws kDevice if the system does not say.
std::vector<Cpu> allowed_cpus();

struct CpuShare {
  std::vector<int> cpus;  // for thread 0, 1, ...: one of each core first, then their hyper-threads
  int threads = 1;
  bool oversubscribed = false;  // more threads than CPUs, or CPUs shared with another rank
};

// Divides the CPUs of a node among its ranks. masks[k]: allowed CPUs of local rank k, in order of (core, id);
// requested[k]: threads it asks for, 0 = one for each core of its share. Pure, so every rank computes the
// same.
//  - Ranks with disjoint masks keep them. Ranks with equal masks divide them into neighbouring parts, equal
//  to within
//    one core (one CPU where there are fewer cores than ranks).
//  - Masks that overlap in part: each CPU goes to the rank that may use it and has the fewest so far.
//  - A rank for which no CPU is left uses its whole mask, and so do all ranks whose CPUs it takes: one thread
//  each
//    unless they ask for more, and oversubscribed.
std::vector<CpuShare> divide_cpus(std::span<const std::vector<Cpu>> masks, std::span<const int> requested);

// This rank's place and CPUs. Collective over comm.
struct Placement {
  int rank = 0;
  std::string host;
  int local_rank = 0, local_size = 1;
  CpuShare share;
};
Placement place(Communicator& comm, int requested_threads);

// Takes n of the share's CPUs away for threads of another kind and returns them; where the share has no more
// than n, it keeps them all and returns them all, and who computes there shares.
std::vector<int> reserve_cpus(CpuShare& share, int n);

// "rank 3 on node07: 4 threads on CPUs 8-11", and " (oversubscribed)" where it is.
std::string start_line(const Placement& placement);
// "" unless oversubscribed: more threads than CPUs.
std::string oversubscription_warning(const Placement& placement);

// Starts the OpenMP team of share.threads and binds each of its threads to one CPU of the share, or all of
// them to the whole share where it is oversubscribed. The calling thread becomes part of it; threads that it
// starts later inherit its CPU unless they call pin_this_thread. A larger team later would start unpinned
// threads on that one CPU. Throws kDevice if the system refuses.
void pin_threads(const CpuShare& share);
void pin_this_thread(std::span<const int> cpus);

}  // namespace tandem
