#include "kernels/top_k.hpp"

#include <algorithm>
#include <limits>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

void top_k(const CpuContext& ctx, std::span<std::int64_t> id, std::span<float> value, ConstMatrix x,
           std::int64_t k) {
  constexpr std::int64_t kPiece = 256;  // columns whose maximum decides whether they are looked at one by one
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  cpu::parallel_for(ctx, x.rows, [&](std::int64_t n) {
    std::int64_t* ids = id.data() + n * k;
    float* values = value.data() + n * k;
    const float* row = x.row(n);
    std::int64_t found = 0;
    const auto insert = [&](std::int64_t column) {
      std::int64_t at = std::min(found, k - 1);
      for (; at > 0 && values[at - 1] < row[column]; --at) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
      }
      values[at] = row[column];
      ids[at] = column;
      found = std::min(found + 1, k);
    };
    for (std::int64_t begin = 0; begin < x.cols; begin += kPiece) {
      const std::int64_t end = std::min(x.cols, begin + kPiece);
      if (found == k) {
        float most = kNone;
#pragma omp simd reduction(max : most)
        for (std::int64_t c = begin; c < end; ++c) most = row[c] > most ? row[c] : most;
        if (!(most > values[k - 1])) continue;
      }
      for (std::int64_t c = begin; c < end; ++c)
        if (found < k ? row[c] == row[c] : row[c] > values[k - 1]) insert(c);
    }
    std::fill(ids + found, ids + k, -1);
    std::fill(values + found, values + k, std::numeric_limits<float>::quiet_NaN());
  });
}

}  // namespace tandem
