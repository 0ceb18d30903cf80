#include "kernels/checksum.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/port.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kParts = 8;  // blocks a tensor

using Word = unsigned long long;

TANDEM_KERNEL checksum_kernel(Word* sum, const std::uint32_t* bits, const TensorPiece* pieces) {
  const TensorPiece piece = pieces[block_x()];
  Word own = 0;
  for (std::int64_t i = static_cast<std::int64_t>(block_y()) * kThreads + thread_x(); i < piece.size;
       i += kParts * kThreads)
    own += static_cast<Word>(checksum_weight(static_cast<std::uint64_t>(piece.first + i))) *
           bits[piece.offset + i];
  own = block_sum(own, block_shared<Word[32]>());
  if (thread_x() == 0) atomic_add(sum, own);
}

}  // namespace

std::uint64_t adapter_checksum(const CudaContext& ctx, std::span<const float> flat,
                               std::span<const TensorPiece> pieces) {
  auto* sum = static_cast<Word*>(ctx.scratch(256));
  zero_bytes(ctx, sum, sizeof(Word));
  launch(ctx, "adapter_checksum", checksum_kernel, {std::ssize(pieces), kParts}, kThreads, 32 * sizeof(Word),
         sum, reinterpret_cast<const std::uint32_t*>(flat.data()), pieces.data());
  std::uint64_t result = 0;
  copy_bytes_to_host(ctx, &result, sum, sizeof(result));
  return result;
}

}  // namespace tandem
