#include "kernels/checksum.hpp"

#include <algorithm>
#include <bit>

namespace tandem {
namespace {

constexpr std::int64_t kChunk = 8192;  // elements a thread takes at a time; the bits do not depend on it

std::uint64_t tensor_checksum(std::span<const float> tensor, std::uint64_t first, int threads) {
  const auto size = static_cast<std::int64_t>(tensor.size());
  const std::int64_t n_chunks = (size + kChunk - 1) / kChunk;
  std::uint64_t checksum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : checksum)
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::int64_t end = std::min(size, (chunk + 1) * kChunk);
    for (std::int64_t i = chunk * kChunk; i < end; ++i) {
      const std::uint64_t bits = std::bit_cast<std::uint32_t>(tensor[static_cast<std::size_t>(i)]);
      checksum += checksum_weight(first + static_cast<std::uint64_t>(i)) * bits;
    }
  }
  return checksum;
}

}  // namespace

std::uint64_t adapter_checksum(std::span<const std::span<const float>> tensors, int threads) {
  std::uint64_t checksum = 0;
  std::uint64_t first = 0;
  for (const std::span<const float> tensor : tensors) {
    checksum += tensor_checksum(tensor, first, threads);
    first += tensor.size();
  }
  return checksum;
}

}  // namespace tandem
