#include "kernels/dropout.hpp"

#include <cmath>

#include "kernels/cpu/parallel.hpp"

namespace tandem {

namespace {

constexpr std::int64_t kRows = 8;  // rows a task

// body(row, c, keep) for every element; keep = 1/(1-p) or 0.
template <class Row>
void for_each_row(const CpuContext& ctx, ConstMatrix shape, const DropoutMask& mask, const Row& row) {
  // unit(u) >= p, as integers: unit is a multiple of 2^-53, and p * 2^53 is exact.
  const auto threshold = static_cast<std::uint64_t>(std::ceil(mask.p * 0x1p53));
  cpu::parallel_pieces(ctx, shape.rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const std::uint64_t base = mask.sample_key[at] + static_cast<std::uint64_t>(mask.position[at]) *
                                                           static_cast<std::uint64_t>(shape.cols);
      row(t, [&, base](std::int64_t c) {
        return (mask.stream.draw(base + static_cast<std::uint64_t>(c)) >> 11) >= threshold;
      });
    }
  });
}

}  // namespace

void dropout(const CpuContext& ctx, Matrix y, ConstMatrix x, const DropoutMask& mask) {
  const auto kept = static_cast<float>(1.0 - mask.p);
  for_each_row(ctx, x, mask, [&](std::int64_t t, const auto& keep) {
    const float* in = x.row(t);
    float* out = y.row(t);
    for (std::int64_t c = 0; c < x.cols; ++c) out[c] = keep(c) ? in[c] / kept : 0.0f;
  });
}

void dropout_backward(const CpuContext& ctx, Matrix dx, ConstMatrix dy, const DropoutMask& mask) {
  const auto kept = static_cast<float>(1.0 - mask.p);
  for_each_row(ctx, dy, mask, [&](std::int64_t t, const auto& keep) {
    const float* in = dy.row(t);
    float* out = dx.row(t);
    for (std::int64_t c = 0; c < dy.cols; ++c) out[c] += keep(c) ? in[c] / kept : 0.0f;
  });
}

}  // namespace tandem
