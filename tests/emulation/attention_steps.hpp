// Every barrier and every wait of the attention kernels is needed, and one that is missing is seen by the
// tests of attention: their bounds, in one of their orders of threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.hpp"
#include "tests/emulation/attention_reference.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/steps_left_out.hpp"

namespace tandem::testing {

inline bool within(const std::vector<double>& got, const Bounded& want) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want.value[i]) <= want.bound[i])) return false;
  return true;
}

// forward, backward: those of a copy of the kernels with Steps.
template <class T, class Forward, class Backward>
void expect_every_step_is_needed(const Roundoffs& roundoffs,
                                 void (*forward)(const CudaContext&, const Forward&, std::int64_t, int),
                                 void (*backward)(const CudaContext&, const Backward&, std::int64_t, int),
                                 std::size_t n_steps) {
  const CudaContext ctx(0);
  const AttentionCase c{{2, 1, 64}, {0, 150}};  // several tiles of each kind
  const std::int64_t n = c.n_tokens(), q_cols = c.heads.q_cols(), kv_cols = c.heads.kv_cols();
  DeviceMatrix<T> q(ctx, n, q_cols), k(ctx, n, kv_cols), v(ctx, n, kv_cols), d(ctx, n, q_cols);
  q.fill("q", 2.0), k.fill("k", 2.0), v.fill("v"), d.fill("d");
  const DeviceArray<std::int32_t> begin(ctx, c.begin);
  const AttentionReference want(c, roundoffs, q.values(), k.values(), v.values(), d.values());
  DeviceMatrix<float> lse(ctx, c.heads.n_heads, n), delta(ctx, c.heads.n_heads, n);
  lse.set(want.lse.value);
  std::vector<double> dots_of_heads;
  const std::vector<double> gradient = d.values();
  for (std::int64_t h = 0; h < c.heads.n_heads; ++h)
    for (std::int64_t t = 0; t < n; ++t) {
      const auto at = static_cast<std::size_t>(t * q_cols + h * c.heads.head_dim);
      dots_of_heads.push_back(dots(&gradient[at], &want.o.value[at], c.heads.head_dim).value);
    }
  delta.set(dots_of_heads);

  const auto right = [&] {
    const DeviceMatrix<T> o(ctx, n, q_cols), dq(ctx, n, q_cols), dk(ctx, n, kv_cols), dv(ctx, n, kv_cols);
    const DeviceMatrix<float> kept(ctx, c.heads.n_heads, n);
    const auto common = [&](auto& x) {
      x.q = decltype(x.q)(q.cview()), x.k = decltype(x.k)(k.cview()), x.v = decltype(x.v)(v.cview());
      x.samples = {begin.data(), 1};
      x.n_heads = 2, x.n_kv_heads = 1, x.group = 2;
      x.scale = 0.125f;
    };
    Forward f;
    common(f);
    f.o = decltype(f.o)(o.view());
    f.lse = kept.view().data, f.lse_stride = n;
    forward(ctx, f, n, 64);
    Backward b;
    common(b);
    b.dq = decltype(b.dq)(dq.view()), b.dk = decltype(b.dk)(dk.view()), b.dv = decltype(b.dv)(dv.view());
    b.d = decltype(b.d)(d.cview()), b.o = decltype(b.o)(o.cview());
    b.lse = lse.view().data, b.lse_stride = n;
    b.delta = delta.view().data, b.delta_stride = n;
    backward(ctx, b, n, 64);
    return within(o.values(), want.o) && within(kept.values(), want.lse) && within(dq.values(), want.dq) &&
           within(dk.values(), want.dk) && within(dv.values(), want.dv);
  };

  cuda::steps = {};
  EXPECT_TRUE(right());
  EXPECT_EQ(cuda::steps.lines.size(), n_steps);
  for (const unsigned line : std::set<unsigned>(cuda::steps.lines)) {
    cuda::steps.left_out = line;
    bool seen = false;
    for (const emulation::Order order : emulation::kOrders) {
      emulation::set_order(order);
      seen = seen || !right();
    }
    EXPECT_TRUE(seen) << "nothing shows that line " << line << " was left out";
  }
  cuda::steps = {};
  emulation::set_order({});
}

}  // namespace tandem::testing
