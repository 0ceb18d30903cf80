#include "src/doctor/machine.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "comm/control_groups.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// CPUs of a list like "0-3,8".
int count_listed(const std::string& list) {
  int n = 0;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t dash = part.find('-');
    n += dash == part.npos ? 1 : std::atoi(part.c_str() + dash + 1) - std::atoi(part.c_str()) + 1;
  }
  return n;
}

// CPUs that the process which started this one may use; 0: not known.
int cpus_of_parent() {
  std::ifstream in(cat("/proc/", getppid(), "/status"));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("Cpus_allowed_list:")) return count_listed(line.substr(line.find('\t') + 1));
  return 0;
}

std::int64_t free_bytes() {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  std::ifstream in("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") free = kib * 1024;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return free;
}

}  // namespace

Finding check_hosts(Communicator& comm, const std::string& host) {
  std::vector<std::string> names;
  std::map<std::string, int> ranks;
  for (const std::string& name : comm.all_gather_text(host))
    if (++ranks[name] == 1) names.push_back(name);
  constexpr std::size_t kShown = 16;
  std::string text = cat(counted(comm.size(), "rank"), " on ", counted(names.size(), "host"), ": ");
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += cat(i ? ", " : "", names[i], " ", ranks[names[i]]);
  return ok(text + (names.size() > kShown ? ", ..." : ""));
}

Finding check_cores(Communicator& node, const Placement& placement) {
  std::string mine;
  for (const Cpu& cpu : allowed_cpus()) mine += cat(cpu.id, " ");
  std::set<int> of_node;
  for (const std::string& text : node.all_gather_text(mine)) {
    std::istringstream in(text);
    for (int cpu = 0; in >> cpu;) of_node.insert(cpu);
  }
  const CpuShare& share = placement.share;
  const auto online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string text =
      cat("each rank ", counted(share.threads, "thread"), " on ", counted(share.cpus.size(), "CPU"),
          "; of the ", counted(online, "CPU"), " of the node ", counted(placement.local_size, "rank"),
          " may use ", of_node.size());
  std::vector<std::string> notes;
  if (share.oversubscribed)
    notes.emplace_back(
        "more threads than CPUs: training will be slow; start fewer ranks or threads, or give each rank more "
        "(mpirun --bind-to none; srun --cpus-per-task)");
  if (std::getenv("OMPI_COMM_WORLD_SIZE") && cpus_of_parent() > static_cast<int>(of_node.size()))
    notes.push_back(cat("mpirun may use ", cpus_of_parent(),
                        " and binds: start without binding (mpirun --bind-to none, as tandem-mpirun does)"));
  const double quota = control_group_limits().cpus;
  if (quota < static_cast<double>(share.threads) * placement.local_size)
    notes.push_back(cat("the control group allows ", quota,
                        " CPUs' time: threads will be stopped now and then; ask for more or start fewer"));
  if (!notes.empty()) return note(cat(text, "; ", joined(notes, "; ")));
  return ok(text);
}

Finding check_memory(Communicator& comm, const Placement& placement) {
  const std::int64_t limit = control_group_limits().memory_bytes;
  const std::int64_t mine = std::min(free_bytes(), limit) / placement.local_size;
  const std::vector<std::int64_t> all = comm.all_gather_value(mine);
  const std::vector<std::int64_t> limits = comm.all_gather_value(limit);
  const std::vector<std::string> hosts = comm.all_gather_text(placement.host);
  const auto least = static_cast<std::size_t>(std::min_element(all.begin(), all.end()) - all.begin());
  std::string text = cat(size_text(static_cast<double>(all[least])), " for each rank");
  if (comm.size() > 1) text += cat(" of ", hosts[least], ", the least");
  if (limits[least] < std::numeric_limits<std::int64_t>::max())
    text += cat(" (the control group's limit is ", size_text(static_cast<double>(limits[least])), ")");
  constexpr std::int64_t kLittle = std::int64_t{512} << 20;
  if (all[least] < kLittle)
    return note(cat(text, ": enough for small models only: ask for more memory or start fewer ranks a node"));
  return ok(text);
}

Finding check_shared_memory(const Placement& placement) {
  constexpr double kLittle = 0x1p30;
  const std::string advice =
      ": ranks of a node that cannot share the model's weights keep a copy each; containers: --shm-size=2g";
  struct statvfs system {};
  if (statvfs("/dev/shm", &system) != 0) return note(cat("none on ", placement.host, advice));
  const double unit = static_cast<double>(system.f_frsize);
  const double size = static_cast<double>(system.f_blocks) * unit,
               free = static_cast<double>(system.f_bavail) * unit;
  if (access("/dev/shm", W_OK | X_OK) != 0) return note(cat("cannot be written on ", placement.host, advice));
  if (placement.local_size == 1) return ok(cat(size_text(size), "; one rank a node needs little"));
  if (free < kLittle)
    return note(cat(size_text(free), " of ", size_text(size), " free on ", placement.host, advice));
  return ok(cat(size_text(size), ", more than 1 GiB free"));
}

Finding check_open_files(int n_ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ok("no limit");
  const auto wanted = static_cast<rlim_t>(128 + 2 * n_ranks);
  if (limit.rlim_cur < wanted)
    return note(cat(limit.rlim_cur, " may be open, ", counted(n_ranks, "rank"), " may need ", wanted,
                    ": ulimit -n ", std::min(limit.rlim_max, rlim_t{65536}), " before mpirun or srun"));
  return ok(cat(limit.rlim_cur, " may be open"));
}

}  // namespace tandem
