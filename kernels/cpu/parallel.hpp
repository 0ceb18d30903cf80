// The one way CPU operations use threads. Work is cut by the shape alone; which thread takes a piece changes
// nothing.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "kernels/context.hpp"

namespace tandem::cpu {

// body(i) for i in [0, n), in any order, on the context's team. body must not throw.
template <class Body>
void parallel_for(const CpuContext& ctx, std::int64_t n, const Body& body) {
#pragma omp parallel num_threads(ctx.threads) if (n > 1)
  {
    // oneDNN starts threads of its own wherever it does not see itself inside a parallel region, a team of
    // one included; its results would then depend on their number.
    omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < n; ++i) body(i);
  }
}

// body(begin, end) over [0, n) in pieces of `piece`, a constant of the operation.
template <class Body>
void parallel_pieces(const CpuContext& ctx, std::int64_t n, std::int64_t piece, const Body& body) {
  parallel_for(ctx, (n + piece - 1) / piece,
               [&](std::int64_t i) { body(i * piece, std::min(n, (i + 1) * piece)); });
}

}  // namespace tandem::cpu
