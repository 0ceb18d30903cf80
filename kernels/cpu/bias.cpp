#include "kernels/bias.hpp"

#include "kernels/cpu/parallel.hpp"

namespace tandem {

void add_bias(const CpuContext& ctx, Matrix y, std::span<const float> b) {
  constexpr std::int64_t kRows = 16;  // rows a task
  cpu::parallel_pieces(ctx, y.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = y.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < y.cols; ++c) row[c] += b[static_cast<std::size_t>(c)];
    }
  });
}

}  // namespace tandem
