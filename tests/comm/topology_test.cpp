#include "comm/topology.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <set>
#include <thread>

#include "src/base/error.hpp"

namespace tandem {
namespace {

using Mask = std::vector<Cpu>;

// CPUs [begin, end), each a core of its own.
Mask cores(int begin, int end) {
  Mask mask;
  for (int id = begin; id < end; ++id) mask.push_back({id, id});
  return mask;
}

// Cores [begin, end) of a machine of `n_cores` cores whose second hyper-threads are numbered after all first
// ones.
Mask hyper_threaded(int begin, int end, int n_cores) {
  Mask mask;
  for (int core = begin; core < end; ++core) {
    mask.push_back({core, core});
    mask.push_back({core + n_cores, core});
  }
  return mask;
}

Mask joined(Mask a, const Mask& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Expected {
  std::vector<int> cpus;
  int threads;
  bool oversubscribed;
};

struct Case {
  const char* name;
  std::vector<Mask> masks;
  std::vector<int> requested;
  std::vector<Expected> expected;
};

TEST(DivideCpus, FollowsItsTable) {
  const Case cases[] = {
      {"one rank takes all", {cores(0, 4)}, {0}, {{{0, 1, 2, 3}, 4, false}}},
      {"one rank, fewer threads", {cores(0, 4)}, {2}, {{{0, 1, 2, 3}, 2, false}}},
      {"one rank, more threads than CPUs (taskset -c 0)", {cores(0, 1)}, {2}, {{{0}, 2, true}}},
      {"equal masks are divided",
       {cores(0, 4), cores(0, 4)},
       {0, 0},
       {{{0, 1}, 2, false}, {{2, 3}, 2, false}}},
      {"a rest goes to some ranks",
       {cores(0, 5), cores(0, 5), cores(0, 5)},
       {0, 0, 0},
       {{{0}, 1, false}, {{1, 2}, 2, false}, {{3, 4}, 2, false}}},
      {"disjoint masks are kept (bound by the launcher)",
       {cores(2, 3), cores(0, 2)},
       {0, 0},
       {{{2}, 1, false}, {{0, 1}, 2, false}}},
      {"two pairs, each with a socket",
       {cores(0, 4), cores(4, 8), cores(0, 4), cores(4, 8)},
       {0, 0, 0, 0},
       {{{0, 1}, 2, false}, {{4, 5}, 2, false}, {{2, 3}, 2, false}, {{6, 7}, 2, false}}},
      {"fewer CPUs than ranks",
       {cores(0, 2), cores(0, 2), cores(0, 2)},
       {0, 0, 4},
       {{{0, 1}, 1, true}, {{0, 1}, 1, true}, {{0, 1}, 4, true}}},
      {"all bound to one CPU by mistake",
       {cores(3, 4), cores(3, 4), cores(5, 6)},
       {0, 0, 0},
       {{{3}, 1, true}, {{3}, 1, true}, {{5}, 1, false}}},
      {"more threads than the share holds",
       {cores(0, 2), cores(0, 2)},
       {3, 1},
       {{{0}, 3, true}, {{1}, 1, false}}},
      {"hyper-threads of a core stay together, one thread a core",
       {hyper_threaded(0, 4, 4), hyper_threaded(0, 4, 4)},
       {0, 0},
       {{{0, 1, 4, 5}, 2, false}, {{2, 3, 6, 7}, 2, false}}},
      {"hyper-threads are used when asked for", {hyper_threaded(0, 2, 2)}, {4}, {{{0, 1, 2, 3}, 4, false}}},
      {"fewer cores than ranks, enough hyper-threads",
       {hyper_threaded(0, 1, 1), hyper_threaded(0, 1, 1)},
       {0, 0},
       {{{0}, 1, false}, {{1}, 1, false}}},
      {"masks that overlap in part", {cores(0, 2), cores(0, 1)}, {0, 0}, {{{1}, 1, false}, {{0}, 1, false}}},
      {"a chain of masks that overlap in part",
       {cores(0, 3), cores(2, 5), cores(7, 8), cores(4, 7)},
       {0, 0, 0, 0},
       {{{0, 1}, 2, false}, {{2, 3, 4}, 3, false}, {{7}, 1, false}, {{5, 6}, 2, false}}},
      {"overlapping masks with too few CPUs",
       {cores(0, 1), cores(0, 2), cores(1, 2)},
       {0, 0, 0},
       {{{0}, 1, true}, {{0, 1}, 1, true}, {{1}, 1, true}}},
      {"CPUs beyond 1024 and holes",
       {joined(cores(1020, 1022), cores(1500, 1502)), joined(cores(1020, 1022), cores(1500, 1502))},
       {0, 0},
       {{{1020, 1021}, 2, false}, {{1500, 1501}, 2, false}}},
      {"no ranks", {}, {}, {}},
  };
  for (const Case& c : cases) {
    const std::vector<CpuShare> shares = divide_cpus(c.masks, c.requested);
    ASSERT_EQ(shares.size(), c.expected.size()) << c.name;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      EXPECT_EQ(shares[rank].cpus, c.expected[rank].cpus) << c.name << ", rank " << rank;
      EXPECT_EQ(shares[rank].threads, c.expected[rank].threads) << c.name << ", rank " << rank;
      EXPECT_EQ(shares[rank].oversubscribed, c.expected[rank].oversubscribed) << c.name << ", rank " << rank;
    }
  }
}

// Whatever the ranks: no CPU is given twice unless it is said so, and none lies idle.
TEST(DivideCpus, EqualMasksAreCoveredOnce) {
  for (int n_cpus = 1; n_cpus <= 12; ++n_cpus) {
    for (int n_ranks = 1; n_ranks <= n_cpus; ++n_ranks) {
      const std::vector<Mask> masks(static_cast<std::size_t>(n_ranks), cores(0, n_cpus));
      const std::vector<int> requested(static_cast<std::size_t>(n_ranks), 0);
      std::multiset<int> given;
      for (const CpuShare& share : divide_cpus(masks, requested)) {
        EXPECT_FALSE(share.oversubscribed);
        EXPECT_LE(std::abs(static_cast<int>(share.cpus.size()) * n_ranks - n_cpus), n_ranks - 1);
        given.insert(share.cpus.begin(), share.cpus.end());
      }
      EXPECT_EQ(given.size(), static_cast<std::size_t>(n_cpus));
      EXPECT_EQ(std::set<int>(given.begin(), given.end()).size(), given.size());
    }
  }
}

std::vector<int> affinity_of_this_thread() {
  std::vector<int> ids;
  for (const Cpu& cpu : allowed_cpus()) ids.push_back(cpu.id);
  return ids;
}

TEST(PinThreads, BindsEachThreadToItsCpu) {
  const std::vector<Cpu> allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  std::thread([&] {  // a thread of its own, so that the other tests stay unbound
    std::vector<int> requested = {0};
    const CpuShare share = divide_cpus(std::vector<Mask>{allowed}, requested).front();
    pin_threads(share);
    std::vector<std::vector<int>> seen(static_cast<std::size_t>(share.threads));
#pragma omp parallel num_threads(share.threads)
    seen[static_cast<std::size_t>(omp_get_thread_num())] = affinity_of_this_thread();
    for (std::size_t thread = 0; thread < seen.size(); ++thread) {
      EXPECT_EQ(seen[thread], std::vector<int>{share.cpus[thread]});
    }
  })
      .join();
}

TEST(PinThreads, LeavesOversubscribedThreadsOnTheWholeShare) {
  const std::vector<Cpu> allowed = allowed_cpus();
  std::vector<int> all;
  for (const Cpu& cpu : allowed) all.push_back(cpu.id);
  std::thread([&] {
    const std::vector<int> requested = {static_cast<int>(allowed.size()) + 1};
    const CpuShare share = divide_cpus(std::vector<Mask>{allowed}, requested).front();
    EXPECT_TRUE(share.oversubscribed);
    pin_threads(share);
    EXPECT_EQ(affinity_of_this_thread(), all);
  }).join();
}

TEST(PinThreads, ACpuThatIsNotThereIsAnError) {
  std::thread([] {
    try {
      pin_this_thread(std::vector<int>{100'000});
      ADD_FAILURE() << "bound to a CPU that is not there";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice);
      EXPECT_EQ(std::string(error.what()).substr(0, 34), "cannot bind a thread to CPUs 10000");
    }
  }).join();
}

TEST(PlacementText, SaysWhoComputesWhere) {
  Placement placement;
  placement.rank = 3;
  placement.host = "node07";
  placement.local_size = 2;
  placement.share = {{8, 9, 40, 41}, 2, false};
  EXPECT_EQ(start_line(placement), "rank 3 on node07: 2 threads on CPUs 8-9,40-41");
  EXPECT_EQ(oversubscription_warning(placement), "");
  placement.share = {{5}, 2, true};
  EXPECT_EQ(start_line(placement), "rank 3 on node07: 2 threads on CPU 5 (oversubscribed)");
  EXPECT_EQ(oversubscription_warning(placement),
            "rank 3 on node07: 2 threads and 2 ranks of this node for CPU 5: training will be slow; start "
            "fewer ranks "
            "or threads, or without binding (mpirun --bind-to none)");
}

}  // namespace
}  // namespace tandem
