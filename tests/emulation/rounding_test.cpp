#include "kernels/rounding.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "kernels/cuda_context.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

std::vector<float> awkward(std::size_t n) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.00390625f,  // halfway, down to even
                               1.01171875f,  // halfway, up to even
                               3.4e38f,      // rounds to infinity
                               1e-45f,
                               std::numeric_limits<float>::infinity(),
                               std::bit_cast<float>(0x7F800001u)};  // a NaN whose upper half is infinity
  const RandomStream stream(1, "awkward");
  while (values.size() < n) values.push_back(static_cast<float>(stream.unit(values.size()) - 0.5));
  values.resize(n);
  return values;
}

TEST(RoundingEmulated, HasTheHostsBitsInEveryOrderAtEveryAlignment) {
  const CudaContext ctx(0);
  for (const emulation::Order order : emulation::kOrders) {
    emulation::set_order(order);
    for (const std::size_t n : {0u, 1u, 7u, 8u, 31u, 33u, 2047u, 2049u, 5000u})
      for (const int offset : {0, 1, 3, 8}) {
        const std::vector<float> x = awkward(n);
        const DeviceArray<float> from(ctx, x, offset);
        const DeviceArray<Bf16> to(ctx, static_cast<std::int64_t>(n), offset);
        to_bf16(ctx, to.span(), from.cspan());
        const std::vector<Bf16> y = to.host();
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(y[i].bits, f32_to_bf16(x[i])) << "element " << i << " of " << n;
      }
  }
  emulation::set_order({});
}

}  // namespace
}  // namespace tandem::testing
