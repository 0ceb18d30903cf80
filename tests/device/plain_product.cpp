// The matrix product on a CPU without oneDNN, in place of kernels/cpu/product.cpp: what the device's results
// are compared with, on small models. Sums in double.
#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel.hpp"
#include "kernels/product.hpp"
#include "kernels/product_shapes.hpp"

namespace tandem {

namespace {

float element(ConstMatrix m, Op op, std::int64_t r, std::int64_t c) {
  return op == Op::kPlain ? m.row(r)[c] : m.row(c)[r];
}

// Row i of beta c + alpha a b. The inner loops read b as it lies in memory.
void product_row(Matrix c, std::int64_t i, float beta, float alpha, ConstMatrix a, Op op_a, ConstMatrix b,
                 Op op_b, std::vector<double>& sums, std::vector<double>& row) {
  const std::int64_t k = op_cols(a, op_a);
  sums.assign(static_cast<std::size_t>(c.cols), 0.0);
  row.resize(static_cast<std::size_t>(k));
  for (std::int64_t p = 0; p < k; ++p)
    row[static_cast<std::size_t>(p)] = static_cast<double>(element(a, op_a, i, p));
  if (op_b == Op::kTransposed) {
    for (std::int64_t j = 0; j < c.cols; ++j) {
      const float* const y = b.row(j);
      double sum = 0.0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t p = 0; p < k; ++p)
        sum += row[static_cast<std::size_t>(p)] * static_cast<double>(y[p]);
      sums[static_cast<std::size_t>(j)] = sum;
    }
  } else {
    for (std::int64_t p = 0; p < k; ++p) {
      const double x = row[static_cast<std::size_t>(p)];
      const float* const y = b.row(p);
      for (std::int64_t j = 0; j < c.cols; ++j)
        sums[static_cast<std::size_t>(j)] += x * static_cast<double>(y[j]);
    }
  }
  float* const out = c.row(i);
  for (std::int64_t j = 0; j < c.cols; ++j)
    out[j] =
        static_cast<float>(static_cast<double>(alpha) * sums[static_cast<std::size_t>(j)] +
                           (beta == 0.0f ? 0.0 : static_cast<double>(beta) * static_cast<double>(out[j])));
}

}  // namespace

namespace cpu {

void product_single(Matrix c, float beta, float alpha, ConstMatrix a, Op op_a, ConstMatrix b, Op op_b) {
  std::vector<double> sums, row;
  for (std::int64_t i = 0; i < c.rows; ++i) product_row(c, i, beta, alpha, a, op_a, b, op_b, sums, row);
}

}  // namespace cpu

void product(const CpuContext& ctx, Matrix c, ConstMatrix base, std::span<const ProductTerm> terms) {
  check_product_shapes(c, base, terms);
  cpu::parallel_for(ctx, c.rows, [&](std::int64_t i) {
    std::vector<double> sums, row;
    if (base.data && base.data != c.data) std::copy_n(base.row(i), c.cols, c.row(i));
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const ProductTerm& term = terms[t];
      const bool started = base.data || has_earlier_term(terms, t);
      product_row(c.col_range(term.c_begin, std::min(c.cols, term.c_end)), i, started ? 1.0f : 0.0f,
                  term.scale, term.a, term.op_a, term.b, term.op_b, sums, row);
    }
  });
}

}  // namespace tandem
