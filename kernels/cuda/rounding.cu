#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/port.hpp"
#include "kernels/rounding.hpp"
#include "src/base/error.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kEach = 8;  // elements of a thread: two loads and one store of 16 bytes

TANDEM_KERNEL to_bf16_kernel(Bf16* y, const float* x, std::int64_t n, bool aligned) {
  const std::int64_t begin = global_thread() * kEach;
  if (begin >= n) return;
  if (aligned && begin + kEach <= n) {
    const Vec16<float> low = load16(x + begin), high = load16(x + begin + 4);
    Vec16<Bf16> rounded;
    for (int i = 0; i < 4; ++i) {
      rounded.at[i] = to_bf16(low.at[i]);
      rounded.at[i + 4] = to_bf16(high.at[i]);
    }
    store16(y + begin, rounded);
    return;
  }
  for (std::int64_t i = begin; i < n && i < begin + kEach; ++i) y[i] = to_bf16(x[i]);
}

}  // namespace

void to_bf16(const CudaContext& ctx, std::span<Bf16> y, std::span<const float> x) {
  if (y.size() != x.size())
    throw Error(ErrorKind::kInternal, cat("to_bf16: y of ", y.size(), " elements, x of ", x.size()));
  const auto n = static_cast<std::int64_t>(x.size());
  launch(ctx, "to_bf16", to_bf16_kernel, {blocks_for(n, kThreads * kEach)}, kThreads, 0, y.data(), x.data(),
         n, aligned16(y.data()) && aligned16(x.data()));
}

}  // namespace tandem
