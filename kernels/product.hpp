// The matrix product: the only one in native's arithmetic, for all frozen weights and adapters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>

#include "kernels/context.hpp"
#include "src/base/matrix.hpp"

namespace tandem {

enum class Op { kPlain, kTransposed };

// scale * op_a(a) op_b(b), added to the columns [c_begin, c_end) of the result.
template <class Real>
struct ProductTermOf {
  MatrixView<const Real> a;
  Op op_a = Op::kPlain;
  MatrixView<const Real> b;
  Op op_b = Op::kPlain;
  float scale = 1.0f;
  std::int64_t c_begin = 0;
  std::int64_t c_end = std::numeric_limits<std::int64_t>::max();
};
using ProductTerm = ProductTermOf<float>;
using Bf16ProductTerm = ProductTermOf<Bf16>;

// c[M,N] = base + sum of the terms, in the order given; base is 0 where `base.data` is null, and may be c
// itself (accumulate). Terms on column ranges of c: each lies inside an earlier term's range or apart from
// it, and together they cover every column that has no base.
//
// The bit contract: c depends on the operands' values and shapes only, not on threads, alignment or
// addresses. The output is cut into blocks fixed by M and N, never along the summed dimension; each block is
// computed by single-threaded calls of oneDNN's sgemm. A block takes all its terms in turn while it is in
// cache, so an adapter's thin product costs no second pass over c. Throws kInternal, printing the shapes, if
// they do not fit. No operand may overlap c, except base = c.
void product(const CpuContext& ctx, Matrix c, ConstMatrix base, std::span<const ProductTerm> terms);

inline void product(const CpuContext& ctx, Matrix c, ConstMatrix base,
                    std::initializer_list<ProductTerm> terms) {
  product(ctx, c, base, std::span<const ProductTerm>(terms.begin(), terms.size()));
}

namespace cpu {
// One product by the calling thread alone: for use inside a parallel region (attention's blocks).
// c = beta * c + alpha * op_a(a) op_b(b)
void product_single(Matrix c, float beta, float alpha, ConstMatrix a, Op op_a, ConstMatrix b, Op op_b);
}  // namespace cpu

// On a device, by cuBLASLt: sums in float32 (inputs rounded to TF32 where ctx.mode() says so), rounded to c's
// format after every term. The algorithm is a function of shapes, strides and the alignment of the pointers.
void product(const CudaContext& ctx, Matrix c, ConstMatrix base, std::span<const ProductTerm> terms);
void product(const CudaContext& ctx, Matrix c, ConstMatrix base, std::span<const Bf16ProductTerm> terms);
void product(const CudaContext& ctx, Bf16Matrix c, ConstBf16Matrix base,
             std::span<const Bf16ProductTerm> terms);

}  // namespace tandem
