// What product() asks of its operands' shapes, the same on every kind of device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/product.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

template <class T>
std::string shape_text(MatrixView<T> m, Op op = Op::kPlain) {
  return cat("[", m.rows, ", ", m.cols, "]", op == Op::kTransposed ? "^T" : "");
}

template <class T>
std::int64_t op_rows(MatrixView<T> m, Op op) {
  return op == Op::kPlain ? m.rows : m.cols;
}
template <class T>
std::int64_t op_cols(MatrixView<T> m, Op op) {
  return op == Op::kPlain ? m.cols : m.rows;
}

// Whether an earlier term has already written term i's columns: ranges nest or are apart.
template <class Real>
bool has_earlier_term(std::span<const ProductTermOf<Real>> terms, std::size_t i) {
  return std::any_of(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const ProductTermOf<Real>& earlier) {
                       return earlier.c_begin <= terms[i].c_begin && terms[i].c_end <= earlier.c_end;
                     });
}

// Throws kInternal, printing the shapes, where they do not fit.
template <class Out, class Real>
void check_product_shapes(MatrixView<Out> c, MatrixView<const Out> base,
                          std::span<const ProductTermOf<Real>> terms) {
  if (base.data && (base.rows != c.rows || base.cols != c.cols))
    throw Error(ErrorKind::kInternal,
                cat("product: base ", shape_text(base), " does not fit c ", shape_text(c)));
  for (const ProductTermOf<Real>& term : terms) {
    const std::int64_t end = std::min(term.c_end, c.cols);
    if (op_rows(term.a, term.op_a) != c.rows || op_cols(term.b, term.op_b) != end - term.c_begin ||
        op_cols(term.a, term.op_a) != op_rows(term.b, term.op_b))
      throw Error(ErrorKind::kInternal,
                  cat("product: ", shape_text(term.a, term.op_a), " x ", shape_text(term.b, term.op_b),
                      " does not fit columns [", term.c_begin, ", ", end, ") of c ", shape_text(c)));
  }
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = terms[j].c_end <= terms[i].c_begin || terms[i].c_end <= terms[j].c_begin;
      const bool inside = terms[j].c_begin <= terms[i].c_begin && terms[i].c_end <= terms[j].c_end;
      if (!apart && !inside)
        throw Error(ErrorKind::kInternal,
                    "product: a term's columns must lie inside an earlier term's or apart from them");
    }
}

}  // namespace tandem
