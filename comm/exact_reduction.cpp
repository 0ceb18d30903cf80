#include "comm/exact_reduction.hpp"

#include "kernels/checksum.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

std::string hex(std::uint64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

// What a rank says before the reduction.
struct Offer {
  std::int64_t too_large;
  std::uint64_t checksum;
};

// Collective: the reduced values have the checksum that the ranks' offers add up to, on every rank.
void require_sum(Communicator& comm, std::string_view where, std::int64_t n_elements, std::uint64_t expected,
                 std::uint64_t mine) {
  const std::vector<std::uint64_t> results = comm.all_gather_value(mine);
  std::vector<int> wrong;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (results[static_cast<std::size_t>(rank)] != expected) wrong.push_back(rank);
  }
  if (!wrong.empty()) {
    throw AgreedError(
        ErrorKind::kDevice,
        cat(where, ": the all-reduce of ", n_elements, " elements does not add up on ",
            wrong.size() == 1 ? "rank " : "ranks ", ranges_text(wrong), " (checksum ",
            hex(results[static_cast<std::size_t>(wrong.front())]), ", the ranks' add up to ", hex(expected),
            "): a contribution was lost, counted twice or changed; check memory and network"),
        wrong.front());
  }
}

class HostSum final : public ReducibleSum {
 public:
  HostSum(Communicator& comm, ExactSumView sum, int threads) : comm_(comm), sum_(sum), threads_(threads) {}
  std::int64_t elements() const override { return sum_.size; }
  ExactSumCarry carry(int ranks) override { return exact_sum_carry(sum_, ranks, threads_); }
  void all_reduce(std::string_view) override { comm_.all_reduce_sum(sum_.all()); }

 private:
  Communicator& comm_;
  ExactSumView sum_;
  int threads_;
};

std::uint64_t checksum_of(std::span<const std::int64_t> values) {
  std::uint64_t checksum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    checksum += checksum_weight(i) * static_cast<std::uint64_t>(values[i]);
  return checksum;
}

}  // namespace

std::uint64_t all_reduce_exact(Communicator& comm, ReducibleSum& sum, std::string_view where,
                               const ElementName& element_name) {
  const int n_ranks = comm.size();
  if (n_ranks > kMaxRanks) {
    throw Error(ErrorKind::kUsage, cat("at most ", kMaxRanks, " ranks can add exactly; started: ", n_ranks));
  }
  const ExactSumCarry mine = sum.carry(n_ranks);
  const std::vector<Offer> offers = comm.all_gather_value(Offer{mine.too_large, mine.checksum_after});
  std::uint64_t expected = 0;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    if (offer.too_large >= 0) {
      throw AgreedError(ErrorKind::kInternal,
                        cat(where, ": the sum of ", element_name(offer.too_large), " on rank ", rank,
                            " is too large to be added over ", n_ranks, " ranks"),
                        rank);
    }
    expected += offer.checksum;
  }

  sum.all_reduce(where);
  const ExactSumCarry reduced = sum.carry(1);
  require_sum(comm, where, sum.elements(), expected, reduced.checksum_before);
  return reduced.checksum_after;
}

std::uint64_t all_reduce_exact(Communicator& comm, ExactSumView sum, std::string_view where,
                               const ElementName& element_name, int threads) {
  HostSum on_host(comm, sum, threads);
  return all_reduce_exact(comm, on_host, where, element_name);
}

void all_reduce_checked(Communicator& comm, std::span<std::int64_t> values, std::string_view where) {
  const std::uint64_t expected = comm.all_reduce_sum(checksum_of(values));
  comm.all_reduce_sum(values);
  require_sum(comm, where, static_cast<std::int64_t>(values.size()), expected, checksum_of(values));
}

}  // namespace tandem
