// Cheap checksums of many numbers, equal for equal numbers whatever the threads: sums mod 2^64 of odd weights
// times bits (SPEC.md, "Digests"). They find faults; against intent there is SHA-256.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/norms.hpp"
#include "src/base/host_device.hpp"
#include "src/base/random.hpp"

namespace tandem {

// Odd, so that weight * difference is 0 mod 2^64 only where the difference is.
TANDEM_HOST_DEVICE constexpr std::uint64_t checksum_weight(std::uint64_t index) {
  return splitmix64(index) | 1u;
}

// sum_i checksum_weight(i) * bits(p_i), i running on over the tensors in the order given (the adapter's
// digest order: byte order of the full names), bits = the float32 as an unsigned integer.
std::uint64_t adapter_checksum(std::span<const std::span<const float>> tensors, int threads);

// The same number of tensors in a device's flat array; on the host when the call returns. Uses scratch of 256
// bytes.
std::uint64_t adapter_checksum(const CudaContext& ctx, std::span<const float> flat,
                               std::span<const TensorPiece> pieces);

}  // namespace tandem
