#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>

#include "comm/gpu_system.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

std::string cuda_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

// NCCL's up to 2.8 had one digit less.
std::string dotted(int version) {
  if (version < 10000) return cat(version / 1000, ".", version % 1000 / 100, ".", version % 100);
  return cat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::string both_text(const char* name, int built, int loaded, std::string (*text)(int)) {
  return cat(name, " ", text(loaded), loaded == built ? "" : cat(" (built with ", text(built), ")"));
}

// A newer release of the same major number does what an older one did; an older one may lack what is called.
std::string library_fault(const char* name, int built, int loaded, int major_unit, std::string (*text)(int)) {
  if (loaded >= built && loaded / major_unit == built / major_unit) return "";
  return cat(name, " ", text(loaded), " is loaded, but the program was built with ", text(built),
             ": load the module or set LD_LIBRARY_PATH that the build had, or build again");
}

std::string size_text(std::uint64_t bytes) {
  std::ostringstream out;
  out.precision(1);
  out << std::fixed << static_cast<double>(bytes) / 0x1p30 << " GiB";
  return out.str();
}

// What a rank of a node sees, as text that travels.
std::string joined_lines(const std::vector<GpuInfo>& visible) {
  std::string text;
  for (const GpuInfo& gpu : visible) text += gpu.bus_id + "\n";
  return text;
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The numbers of the ranks for which `holds`.
std::vector<int> ranks_where(int n_ranks, const std::function<bool(std::size_t)>& holds) {
  std::vector<int> ranks;
  for (int rank = 0; rank < n_ranks; ++rank)
    if (holds(static_cast<std::size_t>(rank))) ranks.push_back(rank);
  return ranks;
}

std::string named(const std::vector<int>& ranks) {
  return cat(ranks.size() == 1 ? "rank " : "ranks ", ranges_text(ranks));
}

// What hides devices from this process, as far as its environment tells.
std::string no_device_text(const GpuVersions& versions) {
  if (versions.driver == 0) return "no NVIDIA driver is installed";
  const char* const listed = std::getenv("CUDA_VISIBLE_DEVICES");
  return cat("no GPU is visible (CUDA_VISIBLE_DEVICES ", listed ? cat("is \"", listed, "\"") : "is not set",
             std::getenv("SLURM_JOB_ID") ? "; Slurm gives them by --gpus-per-task=1" : "", ")");
}

}  // namespace

std::vector<std::optional<int>> pick_gpus(std::span<const std::vector<std::string>> bus_ids) {
  // Devices of the node in the order in which ranks name them, and each rank's list of them.
  std::map<std::string, std::size_t> number;
  std::vector<std::vector<std::size_t>> lists;
  for (const std::vector<std::string>& seen : bus_ids) {
    lists.emplace_back();
    for (const std::string& id : seen)
      lists.back().push_back(number.try_emplace(id, number.size()).first->second);
  }
  constexpr std::size_t kNobody = ~std::size_t{0};
  std::vector<std::size_t> holder(number.size(), kNobody);
  std::vector<std::optional<int>> picked(bus_ids.size());
  const auto give = [&](std::size_t rank, std::size_t place) {
    holder[lists[rank][place]] = rank;
    picked[rank] = static_cast<int>(place);
  };
  const auto free_place = [&](std::size_t rank) -> std::optional<std::size_t> {
    for (std::size_t place = 0; place < lists[rank].size(); ++place)
      if (holder[lists[rank][place]] == kNobody) return place;
    return std::nullopt;
  };
  // A rank that finds none free asks those who hold its devices whether they can do with another.
  std::vector<bool> asked;
  const std::function<bool(std::size_t)> find = [&](std::size_t rank) {
    if (const auto place = free_place(rank)) {
      give(rank, *place);
      return true;
    }
    for (std::size_t place = 0; place < lists[rank].size(); ++place) {
      const std::size_t device = lists[rank][place];
      if (asked[device]) continue;
      asked[device] = true;
      if (find(holder[device])) {
        give(rank, place);
        return true;
      }
    }
    return false;
  };
  std::vector<std::size_t> left;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    asked.assign(number.size(), false);
    if (!lists[rank].empty() && !find(rank)) left.push_back(rank);
  }
  // Those share: each the device that has the fewest ranks so far.
  std::vector<int> load(number.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    if (picked[rank]) ++load[lists[rank][static_cast<std::size_t>(*picked[rank])]];
  for (const std::size_t rank : left) {
    const auto least =
        std::min_element(lists[rank].begin(), lists[rank].end(),
                         [&](std::size_t one, std::size_t other) { return load[one] < load[other]; });
    ++load[*least];
    picked[rank] = static_cast<int>(least - lists[rank].begin());
  }
  return picked;
}

std::string version_fault(const GpuVersions& v) {
  if (v.driver / 1000 < v.runtime / 1000)
    return cat("the NVIDIA driver knows CUDA ", cuda_text(v.driver), ", this program needs CUDA ",
               v.runtime / 1000, " (its runtime is ", cuda_text(v.runtime),
               "): install a newer driver, or build with CUDA ", v.driver / 1000);
  std::string fault = library_fault("CUDA runtime", v.runtime_built, v.runtime, 1000, cuda_text);
  if (fault.empty()) fault = library_fault("cuBLASLt", v.cublas_lt_built, v.cublas_lt, 10000, dotted);
  if (fault.empty() && v.nccl_built != 0) fault = library_fault("NCCL", v.nccl_built, v.nccl, 10000, dotted);
  return fault;
}

std::string versions_text(const GpuVersions& v) {
  return cat(v.driver == 0 ? "no driver" : cat("driver for CUDA ", cuda_text(v.driver)), ", ",
             both_text("CUDA runtime", v.runtime_built, v.runtime, cuda_text), ", ",
             both_text("cuBLASLt", v.cublas_lt_built, v.cublas_lt, dotted), ", ",
             v.nccl_built == 0 ? "no NCCL" : both_text("NCCL", v.nccl_built, v.nccl, dotted));
}

GpuPlan plan_gpus(Communicator& comm, const std::string& host, GpuSystem& system, bool may_share) {
  GpuPlan plan;
  std::vector<GpuInfo> visible;
  agree(comm, [&] {
    plan.versions = system.versions();
    // Without a driver there is no device either, which is said below.
    if (plan.versions.driver == 0) return;
    if (const std::string fault = version_fault(plan.versions); !fault.empty())
      throw Error(ErrorKind::kDevice, fault);
    visible = system.visible();
  });

  const std::vector<std::uint64_t> n_visible = comm.all_gather_value(std::uint64_t{visible.size()});
  const std::vector<std::string> reasons =
      comm.all_gather_text(visible.empty() ? no_device_text(plan.versions) : "");
  const std::vector<std::string> hosts = comm.all_gather_text(host);
  const std::vector<int> blind = ranks_where(comm.size(), [&](std::size_t r) { return n_visible[r] == 0; });
  if (static_cast<int>(blind.size()) == comm.size()) {
    plan.why_none = reasons[0];
    return plan;
  }
  if (!blind.empty())
    throw AgreedError(
        ErrorKind::kDevice,
        cat(named(blind), " of ", comm.size(), ": ", reasons[static_cast<std::size_t>(blind[0])], " on ",
            hosts[static_cast<std::size_t>(blind[0])],
            ", while others see some: give every rank one (srun --gpus-per-task=1)"),
        blind[0]);
  GpuVersions libraries = plan.versions;
  libraries.driver = 0;  // which may differ
  require_equal(comm, "the libraries for GPUs", versions_text(libraries));

  {
    const std::unique_ptr<Communicator> node = comm.node();
    std::vector<std::vector<std::string>> bus_ids;
    for (const std::string& text : node->all_gather_text(joined_lines(visible)))
      bus_ids.push_back(lines_of(text));
    plan.device = pick_gpus(bus_ids)[static_cast<std::size_t>(node->rank())];
    plan.gpu = visible[static_cast<std::size_t>(*plan.device)];
    // Who else of this node has it, and how many there are.
    const std::vector<std::string> taken = node->all_gather_text(plan.gpu.bus_id);
    const std::vector<int> ranks = node->all_gather_value(comm.rank());
    std::vector<int> sharers;
    for (std::size_t k = 0; k < taken.size(); ++k)
      if (taken[k] == plan.gpu.bus_id) sharers.push_back(ranks[k]);
    const bool shares = sharers.size() > 1;
    plan.shared = comm.all_reduce_sum(std::uint64_t{shares ? 1u : 0u}) > 0;
    plan.through_host = plan.shared || may_share;
    plan.sharers = static_cast<int>(sharers.size());
    agree(comm, [&] {
      if (!shares || may_share) return;
      throw Error(ErrorKind::kDevice,
                  cat(named(sharers), " on ", host, " would compute on one GPU (PCI ", plan.gpu.bus_id,
                      "); this rank sees ", counted(visible.size(), "GPU"), ", its node has ",
                      counted(node->size(), "rank"),
                      ": start as many ranks as GPUs, give each its own (srun --gpus-per-task=1), "
                      "or let them share (gpu = shared)"));
    });
  }
  plan.lines = comm.all_gather_text(cat("rank ", comm.rank(), " on ", host, ": GPU ", *plan.device, " of ",
                                        visible.size(), ", ", plan.gpu.name, ", PCI ", plan.gpu.bus_id, ", ",
                                        size_text(plan.gpu.memory_bytes)));
  const std::vector<std::string> names = comm.all_gather_text(plan.gpu.name);
  const std::vector<int> others =
      ranks_where(comm.size(), [&](std::size_t r) { return names[r] != names[0]; });
  if (!others.empty())
    plan.warning =
        cat("GPUs differ (", names[0], "; ", named(others), ": ", names[static_cast<std::size_t>(others[0])],
            "): the run's bits then depend on which rank computes what");
  return plan;
}

}  // namespace tandem
