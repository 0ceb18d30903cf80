// Cheap checksums of many numbers, equal for equal numbers whatever the threads: sums mod 2^64 of odd weights
// times bits (SPEC.md, "Digests"). They find faults; against intent there is SHA-256.
#pragma once

#include <cstdint>
#include <span>

#include "src/base/random.hpp"

namespace tandem {

// Odd, so that weight * difference is 0 mod 2^64 only where the difference is.
constexpr std::uint64_t checksum_weight(std::uint64_t index) { return splitmix64(index) | 1u; }

// sum_i checksum_weight(i) * bits(p_i), i running on over the tensors in the order given (the adapter's
// digest order: byte order of the full names), bits = the float32 as an unsigned integer.
std::uint64_t adapter_checksum(std::span<const std::span<const float>> tensors, int threads);

}  // namespace tandem
