// The all-reduce of an exact sum, checked exactly (DESIGN: the reduction is checked exactly, always).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "kernels/exact_sum.hpp"

namespace tandem {

// Names element i of the sum in an error: "model.layers.0.self_attn.q_proj.lora_A.weight, element 17".
using ElementName = std::function<std::string(std::int64_t)>;

// A sum wherever it lies: on the host or on a device.
class ReducibleSum {
 public:
  virtual ~ReducibleSum() = default;
  virtual std::int64_t elements() const = 0;
  // exact_sum_carry() of all elements.
  virtual ExactSumCarry carry(int ranks) = 0;
  // Collective: each limb becomes its sum over the ranks. `where`: for errors, "update 412".
  virtual void all_reduce(std::string_view where) = 0;
};

// Collective. Each rank's sum becomes the sum over all ranks, carried. Returns the checksum of the carried
// limbs, which depends on the sum alone: the same for any number of ranks (/update/checksum). Throws
// AgreedError on every rank: kInternal where an element is too large on a rank (|high| >= 2^62/ranks);
// kDevice where the ranks' checksums do not add up to that of the reduced limbs on every rank (a contribution
// was lost, counted twice or changed on its way). `where` opens the text: "update 412".
std::uint64_t all_reduce_exact(Communicator& comm, ReducibleSum& sum, std::string_view where,
                               const ElementName& element_name);
std::uint64_t all_reduce_exact(Communicator& comm, ExactSumView sum, std::string_view where,
                               const ElementName& element_name, int threads);

// Collective. values[i] = sum over ranks of values[i] mod 2^64, checked in the same way; throws the same
// kDevice. For numbers that one rank has and the others hold as 0.
void all_reduce_checked(Communicator& comm, std::span<std::int64_t> values, std::string_view where);

}  // namespace tandem
