#include "src/model/adapted_product.hpp"

#include <array>

#include "kernels/product.hpp"

namespace tandem {

void adapted_product(const CpuContext& ctx, Matrix y, ConstMatrix base, ConstMatrix x, ConstMatrix w,
                     const LoraLayout& lora, const LoraGroup& group, std::span<const float> adapter,
                     ConstMatrix u) {
  std::array<ProductTerm, 4> terms;
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
  product(ctx, y, base, std::span<const ProductTerm>(terms.data(), n));
}

}  // namespace tandem
