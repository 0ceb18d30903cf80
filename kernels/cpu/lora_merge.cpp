#include "kernels/lora_merge.hpp"

#include <algorithm>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

namespace {
constexpr std::int64_t kRows = 4;  // rows a task
}  // namespace

void lora_delta(const CpuContext& ctx, std::span<double> delta, ConstMatrix a, ConstMatrix b, double scale) {
  cpu::parallel_pieces(ctx, b.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      double* row = delta.data() + o * a.cols;
      std::fill_n(row, a.cols, 0.0);
      for (std::int64_t k = 0; k < a.rows; ++k) {
        const auto factor = static_cast<double>(b.row(o)[k]);
        const float* x = a.row(k);
#pragma omp simd
        for (std::int64_t i = 0; i < a.cols; ++i) row[i] += factor * static_cast<double>(x[i]);
      }
#pragma omp simd
      for (std::int64_t i = 0; i < a.cols; ++i) row[i] *= scale;
    }
  });
}

}  // namespace tandem
