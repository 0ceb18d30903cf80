#include "kernels/norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

namespace {

double dot(const float* x, const float* y, std::int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

// sum_j (b^T b)_ij (a a^T)_ij, some columns j of b at a time.
double row_of_product(ConstMatrix b, ConstMatrix a, std::int64_t i) {
  constexpr std::int64_t kColumns = 16;
  double sum = 0.0;
  for (std::int64_t first = 0; first < a.rows; first += kColumns) {
    std::array<double, kColumns> gram{};
    const std::int64_t count = std::min(kColumns, a.rows - first);
    for (std::int64_t o = 0; o < b.rows; ++o) {
      const float* row = b.row(o);
      const auto factor = static_cast<double>(row[i]);
      for (std::int64_t j = 0; j < count; ++j)
        gram[static_cast<std::size_t>(j)] += factor * static_cast<double>(row[first + j]);
    }
    for (std::int64_t j = 0; j < count; ++j)
      sum += gram[static_cast<std::size_t>(j)] * dot(a.row(i), a.row(first + j), a.cols);
  }
  return sum;
}

// The sum of part(i) for i in [0, n), a fixed number of them at a time.
template <class Part>
double sum_of_parts(const CpuContext& ctx, std::int64_t n, const Part& part) {
  constexpr std::int64_t kSlots = 64;
  double total = 0.0;
  for (std::int64_t base = 0; base < n; base += kSlots) {
    std::array<double, kSlots> slot{};
    cpu::parallel_for(ctx, std::min(kSlots, n - base),
                      [&](std::int64_t i) { slot[static_cast<std::size_t>(i)] = part(base + i); });
    for (const double sum : slot) total += sum;
  }
  return total;
}

}  // namespace

double product_norm(const CpuContext& ctx, ConstMatrix b, ConstMatrix a) {
  const double squares = sum_of_parts(ctx, a.rows, [&](std::int64_t i) { return row_of_product(b, a, i); });
  // Where b a nearly vanishes beside a and b, rounding may leave a sum below 0.
  return squares < 0.0 ? 0.0 : std::sqrt(squares);
}

double difference_norm(const CpuContext& ctx, std::span<const float> x, std::span<const float> y) {
  constexpr std::int64_t kPiece = 8192;
  const auto n = static_cast<std::int64_t>(x.size());
  const double squares = sum_of_parts(ctx, (n + kPiece - 1) / kPiece, [&](std::int64_t i) {
    const float *xs = x.data() + i * kPiece, *ys = y.data() + i * kPiece;
    const std::int64_t count = std::min(kPiece, n - i * kPiece);
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t k = 0; k < count; ++k) {
      const double difference = static_cast<double>(xs[k]) - static_cast<double>(ys[k]);
      sum += difference * difference;
    }
    return sum;
  });
  return std::sqrt(squares);
}

}  // namespace tandem
