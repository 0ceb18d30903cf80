#include "kernels/product.hpp"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.hpp"
#include "kernels/product_shapes.hpp"

namespace tandem {

namespace {

// Blocks of 512 x 512 keep oneDNN near its best (DESIGN: the machine's limit); smaller outputs are cut
// further, so that many cores find work, but not below 128.
struct BlockShape {
  std::int64_t rows, cols;
};

BlockShape block_shape(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kLargest = 512, kSmallest = 128, kEnoughBlocks = 16;
  BlockShape block{std::min(m, kLargest), std::min(n, kLargest)};
  const auto blocks = [&] {
    return ((m + block.rows - 1) / block.rows) * ((n + block.cols - 1) / block.cols);
  };
  while (blocks() < kEnoughBlocks && std::max(block.rows, block.cols) > kSmallest) {
    std::int64_t& longer = block.rows >= block.cols ? block.rows : block.cols;
    longer = std::max(kSmallest, (longer + 1) / 2);
  }
  return block;
}

// Rows [begin, end) of op(m), as a view of m.
ConstMatrix op_row_range(ConstMatrix m, Op op, std::int64_t begin, std::int64_t end) {
  return op == Op::kPlain ? m.row_range(begin, end) : m.col_range(begin, end);
}
ConstMatrix op_col_range(ConstMatrix m, Op op, std::int64_t begin, std::int64_t end) {
  return op == Op::kPlain ? m.col_range(begin, end) : m.row_range(begin, end);
}

}  // namespace

namespace cpu {

void product_single(Matrix c, float beta, float alpha, ConstMatrix a, Op op_a, ConstMatrix b, Op op_b) {
  if (c.rows == 0 || c.cols == 0) return;
  const std::int64_t k = op_cols(a, op_a);
  if (k == 0) {  // an empty sum; BLAS leading dimensions could not express it
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t j = 0; j < c.cols; ++j) c.row(r)[j] = beta == 0.0f ? 0.0f : beta * c.row(r)[j];
    return;
  }
  // A row of a one-row operand may have any stride; sgemm wants at least the number of columns.
  const auto leading = [](ConstMatrix m) { return std::max(m.stride, std::max<std::int64_t>(1, m.cols)); };
  const auto letter = [](Op op) { return op == Op::kPlain ? 'N' : 'T'; };
  // Arguments are checked above, so only a broken installation makes this fail; NaN shows it, and stops the
  // run.
  if (dnnl_sgemm(letter(op_a), letter(op_b), c.rows, c.cols, k, alpha, a.data, leading(a), b.data, leading(b),
                 beta, c.data, leading(c)) != dnnl_success)
    for (std::int64_t r = 0; r < c.rows; ++r)
      std::fill_n(c.row(r), c.cols, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace cpu

void product(const CpuContext& ctx, Matrix c, ConstMatrix base, std::span<const ProductTerm> terms) {
  check_product_shapes(c, base, terms);
  if (c.rows == 0 || c.cols == 0) return;
  const BlockShape block = block_shape(c.rows, c.cols);
  const std::int64_t row_blocks = (c.rows + block.rows - 1) / block.rows;
  const std::int64_t col_blocks = (c.cols + block.cols - 1) / block.cols;
  cpu::parallel_for(ctx, row_blocks * col_blocks, [&](std::int64_t index) {
    const std::int64_t r0 = index / col_blocks * block.rows, r1 = std::min(c.rows, r0 + block.rows);
    const std::int64_t c0 = index % col_blocks * block.cols, c1 = std::min(c.cols, c0 + block.cols);
    if (base.data && base.data != c.data)
      for (std::int64_t r = r0; r < r1; ++r)
        std::memcpy(c.row(r) + c0, base.row(r) + c0, static_cast<std::size_t>(c1 - c0) * sizeof(float));
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const ProductTerm& term = terms[i];
      const std::int64_t begin = std::max(c0, term.c_begin), end = std::min(c1, term.c_end);
      if (begin >= end) continue;
      const bool started = base.data || has_earlier_term(terms, i);
      cpu::product_single(c.row_range(r0, r1).col_range(begin, end), started ? 1.0f : 0.0f, term.scale,
                          op_row_range(term.a, term.op_a, r0, r1), term.op_a,
                          op_col_range(term.b, term.op_b, begin - term.c_begin, end - term.c_begin),
                          term.op_b);
    }
  });
}

}  // namespace tandem
