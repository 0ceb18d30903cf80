#include "kernels/embedding.hpp"

#include <cstring>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

namespace {
constexpr std::int64_t kRows = 16;  // rows a task
std::size_t row_bytes(ConstMatrix m) { return static_cast<std::size_t>(m.cols) * sizeof(float); }
}  // namespace

void gather_rows(const CpuContext& ctx, Matrix y, ConstMatrix table, std::span<const std::int32_t> index) {
  cpu::parallel_pieces(ctx, y.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      std::memcpy(y.row(t), table.row(index[static_cast<std::size_t>(t)]), row_bytes(y));
  });
}

void scatter_rows(const CpuContext& ctx, Matrix x, ConstMatrix y, std::span<const std::int32_t> index) {
  cpu::parallel_pieces(ctx, x.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) std::memset(x.row(t), 0, row_bytes(x));
  });
  cpu::parallel_pieces(ctx, y.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n)
      std::memcpy(x.row(index[static_cast<std::size_t>(n)]), y.row(n), row_bytes(y));
  });
}

}  // namespace tandem
