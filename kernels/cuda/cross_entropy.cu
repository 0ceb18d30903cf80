// A block a row. The first pass keeps a running maximum and the sum of exponentials below it, so that the
// logits come from memory once for the loss and once more for the gradient; the row's beginning, as much as
// shared memory holds, is kept there and not read again.
#include <algorithm>
#include <cfloat>

#include "kernels/cross_entropy.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = kUnit<float>;
constexpr int kAhead = 4;  // loads in flight a thread
constexpr int kMaxThreads = 1024;

// sum of exp(x - most) over some elements x; none: {-FLT_MAX, 0}.
struct Running {
  float most = -FLT_MAX, sum = 0.0f;
};

struct alignas(16) Shared {
  Running of_warp[kWarp];
  // and behind it the row's first elements
};

TANDEM_DEVICE Running joined(Running a, Running b) {
  const float most = b.most > a.most ? b.most : a.most;
  return {most, a.sum * exp_f32(a.most - most) + b.sum * exp_f32(b.most - most)};
}

// Of the warp's lanes, in lane 0.
TANDEM_DEVICE Running joined_lanes(Running own) {
  TANDEM_UNROLL
  for (int distance = 16; distance > 0; distance /= 2)
    own = joined(own, {shuffle_down(own.most, distance), shuffle_down(own.sum, distance)});
  return own;
}

TANDEM_DEVICE Running joined_block(Running own, Running* of_warp) {
  own = joined_lanes(own);
  if (lane() == 0) of_warp[warp()] = own;
  barrier();
  own = joined_lanes(lane() < thread_count() / kWarp ? of_warp[lane()] : Running());
  return {shuffle(own.most, 0), shuffle(own.sum, 0)};
}

TANDEM_DEVICE void add(Running& r, const float (&v)[kN]) {
  float most = r.most;
  TANDEM_UNROLL
  for (int i = 0; i < kN; ++i) most = v[i] > most ? v[i] : most;
  if (most > r.most) {
    r.sum *= exp_f32(r.most - most);
    r.most = most;
  }
  TANDEM_UNROLL
  for (int i = 0; i < kN; ++i) r.sum += exp_f32(v[i] - r.most);
}

// kGradient: the first n_kept elements of each row, whole units, wait in shared memory.
template <bool kGradient, class T>
TANDEM_KERNEL_BOUNDS(kMaxThreads, 1)
cross_entropy_kernel(float* nll, Matrix logits, const std::int32_t* target, MatrixView<T> gradient,
                     std::int64_t n_kept) {
  Shared& shared = block_shared<Shared>();
  float* kept = reinterpret_cast<float*>(&shared + 1);  // [n_kept]
  const float* x = logits.row(block_x());
  const std::int64_t cols = logits.cols, right = target[block_x()];
  const std::int64_t first = thread_x() * kN, step = thread_count() * kN;
  const float right_logit = x[right];  // before the gradient may take its place
  Running own;
  for (std::int64_t c = first; c < cols; c += kAhead * step) {
    float v[kAhead][kN];
    TANDEM_UNROLL
    for (int a = 0; a < kAhead; ++a) load(v[a], x + c + a * step, cols - c - a * step, -INFINITY);
    TANDEM_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      const std::int64_t at = c + a * step;
      if (kGradient && at < n_kept) store(kept + at, v[a], n_kept - at);
      add(own, v[a]);
    }
  }
  const Running row = joined_block(own, shared.of_warp);
  if (thread_x() == 0) nll[block_x()] = log_f32(row.sum) + row.most - right_logit;
  if constexpr (kGradient) {
    const float inverse = 1.0f / row.sum;
    T* out = gradient.row(block_x());
    for (std::int64_t c = first; c < cols; c += step) {
      float v[kN];
      load(v, c < n_kept ? kept + c : x + c, cols - c);
      TANDEM_UNROLL
      for (int i = 0; i < kN; ++i) {
        v[i] = exp_f32(v[i] - row.most) * inverse;
        if (c + i == right) v[i] -= 1.0f;
      }
      store(out + c, v, cols - c);
    }
  }
}

template <class T>
void run(const CudaContext& ctx, std::span<float> nll, Matrix logits, std::span<const std::int32_t> target,
         MatrixView<T> gradient) {
  // Threads that a row of this length gives a unit each.
  const std::int64_t units = (logits.cols + kN - 1) / kN;
  const int threads =
      static_cast<int>(std::clamp<std::int64_t>(blocks_for(units, kWarp) * kWarp, kWarp, kMaxThreads));
  const bool wanted = gradient.data != nullptr;
  const auto room =
      static_cast<std::int64_t>((ctx.members().shared_bytes_limit - sizeof(Shared)) / sizeof(float));
  const std::int64_t n_kept = wanted ? std::min(units, room / kN) * kN : 0;
  launch(ctx, "cross_entropy", wanted ? cross_entropy_kernel<true, T> : cross_entropy_kernel<false, T>,
         {logits.rows}, threads, sizeof(Shared) + static_cast<std::size_t>(n_kept) * sizeof(float),
         nll.data(), logits, target.data(), gradient, n_kept);
}

}  // namespace

void cross_entropy(const CudaContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Matrix gradient) {
  run(ctx, nll, logits, target, gradient);
}
void cross_entropy(const CudaContext& ctx, std::span<float> nll, Matrix logits,
                   std::span<const std::int32_t> target, Bf16Matrix gradient) {
  run(ctx, nll, logits, target, gradient);
}

}  // namespace tandem
