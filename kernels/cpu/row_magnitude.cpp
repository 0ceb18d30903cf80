#include "kernels/row_magnitude.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

void row_magnitude(const CpuContext& ctx, std::span<double> squares, std::span<float> absmax, ConstMatrix x) {
  constexpr std::int64_t kRows = 16;  // that a thread takes at a time
  cpu::parallel_pieces(ctx, x.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* row = x.row(t);
      double sum = 0.0;
      float most = 0.0f;
#pragma omp simd reduction(+ : sum) reduction(max : most)
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const float size = std::abs(row[c]);
        sum += static_cast<double>(row[c]) * static_cast<double>(row[c]);
        most = size > most ? size : most;
      }
      squares[static_cast<std::size_t>(t)] = sum;
      absmax[static_cast<std::size_t>(t)] = most;
    }
  });
}

}  // namespace tandem
