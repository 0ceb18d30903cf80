// A fused projection with its adapters: the products that every forward pass makes of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/product.hpp"
#include "src/base/matrix.hpp"
#include "src/model/lora.hpp"

namespace tandem {

// y = base + x W^T + s u B^T, the last for each adapted module's columns of y, where u = x A^T holds the
// group's members side by side [T, r*members]. adapter: flat array of the layout, or empty: W alone, and u is
// not looked at. base: none (0), y itself, or apart from y.
template <class Real, class Context, class Result>
void adapted_product(const Context& ctx, MatrixView<Result> y,
                     std::type_identity_t<MatrixView<const Result>> base,
                     std::type_identity_t<MatrixView<const Real>> x, MatrixView<const Real> w,
                     const LoraLayout& lora, const LoraGroup& group, std::span<const Real> adapter,
                     std::type_identity_t<MatrixView<const Real>> u) {
  std::array<ProductTermOf<Real>, 4> terms;
  std::size_t n = 0;
  terms[n++] = {x, Op::kPlain, w, Op::kTransposed};
  if (!adapter.empty()) {
    std::int64_t column = 0;
    for (const LoraGroup::Member& member : group.members) {
      terms[n++] = {u.col_range(column, column + lora.rank()),
                    Op::kPlain,
                    lora.b(adapter, member),
                    Op::kTransposed,
                    lora.scale_of(member),
                    member.row_begin,
                    member.row_end};
      column += lora.rank();
    }
  }
  product(ctx, y, base, std::span<const ProductTermOf<Real>>(terms.data(), n));
}

}  // namespace tandem
