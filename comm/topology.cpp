#include "comm/topology.hpp"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "src/base/host.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

// An affinity mask for any number of CPUs; cpu_set_t ends at 1024.
class CpuSet {
 public:
  explicit CpuSet(int n_cpus) : n_cpus_(n_cpus), set_(CPU_ALLOC(static_cast<std::size_t>(n_cpus))) {
    if (!set_) throw std::bad_alloc();
    CPU_ZERO_S(bytes(), set_.get());
  }
  std::size_t bytes() const { return CPU_ALLOC_SIZE(static_cast<std::size_t>(n_cpus_)); }
  cpu_set_t* get() { return set_.get(); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), set_.get()); }
  bool has(int cpu) const { return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes(), set_.get()); }
  int n_cpus() const { return n_cpus_; }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  int n_cpus_;
  std::unique_ptr<cpu_set_t, Free> set_;
};

[[noreturn]] void refused(std::string_view what, int error) {
  throw Error(ErrorKind::kDevice, cat(what, ": ", std::strerror(error)));
}

int first_number(const std::string& file, int otherwise) {
  std::ifstream in(file);
  int value = otherwise;
  return in >> value ? value : otherwise;
}

// Equal for hyper-threads, ordered by socket; the CPU's own number where the system does not say.
int core_of(int cpu) {
  const std::string folder = cat("/sys/devices/system/cpu/cpu", cpu, "/topology/");
  const int socket = std::max(0, first_number(folder + "physical_package_id", 0));
  const int first_sibling = first_number(folder + "thread_siblings_list", cpu);
  return (socket << 20) + first_sibling;
}

bool by_core(const Cpu& a, const Cpu& b) { return a.core != b.core ? a.core < b.core : a.id < b.id; }

int count_cores(std::span<const Cpu> cpus) {
  int n = 0;
  for (std::size_t i = 0; i < cpus.size(); ++i) n += i == 0 || cpus[i].core != cpus[i - 1].core ? 1 : 0;
  return n;
}

// Part `part` of `n_parts` neighbouring parts of [0, n).
std::pair<std::size_t, std::size_t> part_of(std::size_t n, std::size_t part, std::size_t n_parts) {
  return {n * part / n_parts, n * (part + 1) / n_parts};
}

// The CPUs of cores [begin, end) of the ordered set.
std::vector<Cpu> cpus_of_cores(std::span<const Cpu> cpus, std::size_t begin, std::size_t end) {
  std::vector<Cpu> taken;
  std::size_t core = 0;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    if (i > 0 && cpus[i].core != cpus[i - 1].core) ++core;
    if (begin <= core && core < end) taken.push_back(cpus[i]);
  }
  return taken;
}

// Ranks of one group compete for CPUs, directly or through others.
std::vector<std::vector<std::size_t>> competing_groups(std::span<const std::vector<Cpu>> masks) {
  std::vector<std::size_t> group(masks.size());
  std::map<int, std::size_t> group_of_cpu;
  for (std::size_t rank = 0; rank < masks.size(); ++rank) {
    group[rank] = rank;
    for (const Cpu& cpu : masks[rank]) {
      const auto [entry, is_new] = group_of_cpu.emplace(cpu.id, rank);
      const std::size_t other = group[entry->second];
      const std::size_t mine = group[rank];
      if (!is_new && other != mine) {
        for (std::size_t r = 0; r <= rank; ++r) {
          if (group[r] == mine) group[r] = other;
        }
      }
    }
  }
  std::map<std::size_t, std::vector<std::size_t>> members;
  for (std::size_t rank = 0; rank < masks.size(); ++rank) members[group[rank]].push_back(rank);
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [name, ranks] : members) groups.push_back(std::move(ranks));
  return groups;
}

// CPUs of one mask in equal parts, whole cores where there are enough; empty parts where there are too few
// CPUs.
std::vector<std::vector<Cpu>> divide_equally(std::span<const Cpu> mask, std::size_t n_ranks) {
  const auto n_cores = static_cast<std::size_t>(count_cores(mask));
  std::vector<std::vector<Cpu>> parts(n_ranks);
  for (std::size_t part = 0; part < n_ranks; ++part) {
    if (n_cores >= n_ranks) {
      const auto [begin, end] = part_of(n_cores, part, n_ranks);
      parts[part] = cpus_of_cores(mask, begin, end);
    } else {
      const auto [begin, end] = part_of(mask.size(), part, n_ranks);
      parts[part].assign(mask.begin() + static_cast<std::ptrdiff_t>(begin),
                         mask.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  return parts;
}

// CPUs of masks that overlap in part: those that fewest ranks may use first, each to the rank with the fewest
// so far.
std::vector<std::vector<Cpu>> divide_overlapping(std::span<const std::vector<Cpu>> masks,
                                                 std::span<const std::size_t> ranks) {
  struct Claim {
    Cpu cpu;
    std::vector<std::size_t> members;  // positions in `ranks`
  };
  std::map<std::pair<int, int>, Claim> by_place;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    for (const Cpu& cpu : masks[ranks[member]]) {
      Claim& claim = by_place[{cpu.core, cpu.id}];
      claim.cpu = cpu;
      claim.members.push_back(member);
    }
  }
  std::vector<Claim> claims;
  for (auto& [place, claim] : by_place) claims.push_back(std::move(claim));
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return a.members.size() < b.members.size(); });
  std::vector<std::vector<Cpu>> parts(ranks.size());
  for (const Claim& claim : claims) {
    const auto fewer = [&](std::size_t a, std::size_t b) { return parts[a].size() < parts[b].size(); };
    parts[*std::min_element(claim.members.begin(), claim.members.end(), fewer)].push_back(claim.cpu);
  }
  for (auto& part : parts) std::sort(part.begin(), part.end(), by_core);
  return parts;
}

CpuShare make_share(std::span<const Cpu> cpus, int requested, bool shared) {
  CpuShare share;
  std::vector<int> hyper_threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const bool first_of_core = i == 0 || cpus[i].core != cpus[i - 1].core;
    (first_of_core ? share.cpus : hyper_threads).push_back(cpus[i].id);
  }
  const int n_cores = static_cast<int>(share.cpus.size());
  share.cpus.insert(share.cpus.end(), hyper_threads.begin(), hyper_threads.end());
  share.threads = requested > 0 ? requested : shared ? 1 : std::max(1, n_cores);
  share.oversubscribed = shared || share.threads > static_cast<int>(share.cpus.size());
  return share;
}

std::string encode(std::span<const Cpu> cpus, int requested) {
  std::string text = std::to_string(requested);
  for (const Cpu& cpu : cpus) text += cat(' ', cpu.id, ' ', cpu.core);
  return text;
}

std::string cpus_text(const CpuShare& share) {
  std::vector<int> sorted = share.cpus;
  std::sort(sorted.begin(), sorted.end());
  return cat(sorted.size() == 1 ? "CPU " : "CPUs ", ranges_text(sorted));
}

std::string threads_text(int n) { return cat(n, n == 1 ? " thread" : " threads"); }

// 0, or the error number.
int set_affinity(std::span<const int> cpus) {
  if (cpus.empty()) return 0;
  CpuSet set(*std::max_element(cpus.begin(), cpus.end()) + 1);
  for (const int cpu : cpus) set.add(cpu);
  return sched_setaffinity(0, set.bytes(), set.get()) == 0 ? 0 : errno;
}

}  // namespace

std::vector<Cpu> allowed_cpus() {
  // The kernel refuses a mask shorter than its own.
  for (int n_cpus = 1024; n_cpus <= (1 << 20); n_cpus *= 2) {
    CpuSet set(n_cpus);
    if (sched_getaffinity(0, set.bytes(), set.get()) != 0) {
      if (errno == EINVAL) continue;
      refused("the system does not tell which CPUs may be used", errno);
    }
    std::vector<Cpu> cpus;
    for (int cpu = 0; cpu < n_cpus; ++cpu) {
      if (set.has(cpu)) cpus.push_back({cpu, core_of(cpu)});
    }
    std::sort(cpus.begin(), cpus.end(), by_core);
    return cpus;
  }
  refused("the system does not tell which CPUs may be used", EINVAL);
}

std::vector<CpuShare> divide_cpus(std::span<const std::vector<Cpu>> masks, std::span<const int> requested) {
  std::vector<CpuShare> shares(masks.size());
  for (const std::vector<std::size_t>& ranks : competing_groups(masks)) {
    const std::vector<Cpu>& first = masks[ranks.front()];
    const bool equal =
        std::all_of(ranks.begin(), ranks.end(), [&](std::size_t r) { return masks[r] == first; });
    const auto parts = equal ? divide_equally(first, ranks.size()) : divide_overlapping(masks, ranks);
    const bool shared =
        std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); });
    for (std::size_t member = 0; member < ranks.size(); ++member) {
      const std::size_t rank = ranks[member];
      shares[rank] = make_share(shared ? masks[rank] : parts[member], requested[rank], shared);
    }
  }
  return shares;
}

Placement place(Communicator& comm, int requested_threads) {
  const std::unique_ptr<Communicator> node = comm.node();
  std::vector<std::vector<Cpu>> masks;
  std::vector<int> requested;
  for (const std::string& text : node->all_gather_text(encode(allowed_cpus(), requested_threads))) {
    std::istringstream in(text);
    in >> requested.emplace_back();
    std::vector<Cpu>& mask = masks.emplace_back();
    for (Cpu cpu; in >> cpu.id >> cpu.core;) mask.push_back(cpu);
  }
  Placement placement;
  placement.rank = comm.rank();
  placement.local_rank = node->rank();
  placement.local_size = node->size();
  placement.share = divide_cpus(masks, requested)[static_cast<std::size_t>(node->rank())];
  placement.host = host_name();
  return placement;
}

std::vector<int> reserve_cpus(CpuShare& share, int n) {
  if (static_cast<int>(share.cpus.size()) <= n) {
    share.oversubscribed = true;
    return share.cpus;
  }
  const std::vector<int> reserved(share.cpus.end() - n, share.cpus.end());
  share.cpus.resize(share.cpus.size() - static_cast<std::size_t>(n));
  share.threads = std::min(share.threads, static_cast<int>(share.cpus.size()));
  return reserved;
}

std::string start_line(const Placement& placement) {
  const CpuShare& share = placement.share;
  return cat("rank ", placement.rank, " on ", placement.host, ": ", threads_text(share.threads), " on ",
             cpus_text(share), share.oversubscribed ? " (oversubscribed)" : "");
}

std::string oversubscription_warning(const Placement& placement) {
  const CpuShare& share = placement.share;
  if (!share.oversubscribed) return "";
  return cat("rank ", placement.rank, " on ", placement.host, ": ", threads_text(share.threads), " and ",
             placement.local_size, placement.local_size == 1 ? " rank" : " ranks", " of this node for ",
             cpus_text(share),
             ": training will be slow; start fewer ranks or threads, or without binding (mpirun "
             "--bind-to none)");
}

void pin_threads(const CpuShare& share) {
  int error = 0;
  int n_threads = 0;
#pragma omp parallel num_threads(share.threads) reduction(max : error)
  {
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    const std::span<const int> cpus = share.cpus;
    error = set_affinity(share.oversubscribed ? cpus : cpus.subspan(thread, 1));
#pragma omp master
    n_threads = omp_get_num_threads();
  }
  if (error != 0) refused(cat("cannot bind threads to ", cpus_text(share)), error);
  if (n_threads != share.threads) {
    throw Error(ErrorKind::kDevice, cat("OpenMP starts ", n_threads, " instead of ", share.threads,
                                        " threads; look at OMP_THREAD_LIMIT and OMP_DYNAMIC"));
  }
}

void pin_this_thread(std::span<const int> cpus) {
  const int error = set_affinity(cpus);
  if (error != 0) refused(cat("cannot bind a thread to CPUs ", ranges_text(cpus)), error);
}

}  // namespace tandem
