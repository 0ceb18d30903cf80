#include "kernels/lora_merge.hpp"

#include "tests/kernels/support.hpp"

namespace tandem {
namespace {

using namespace testing;

// Every element as the header's formula, in the same order of double additions: equal bits, on any threads.
TEST(LoraDelta, IsTheScaledProductInDouble) {
  for (const std::int64_t rank : {1, 3, 16}) {
    const std::int64_t in = 33, out = 9;
    TestMatrix a(rank, in, 3, 1), b(out, rank, 2, 1);
    a.fill("a"), b.fill("b");
    std::vector<double> one(static_cast<std::size_t>(in * out), std::nan("")), four = one;
    lora_delta(CpuContext(1), one, a.view(), b.view(), 1.5);
    lora_delta(CpuContext(4), four, a.view(), b.view(), 1.5);
    EXPECT_EQ(one, four);
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < rank; ++k) sum += b.at(o, k) * a.at(k, i);
        // A multiply-add may round once where this rounds twice.
        EXPECT_NEAR(one[static_cast<std::size_t>(o * in + i)], 1.5 * sum, 1e-15 * static_cast<double>(rank));
      }
  }
}

}  // namespace
}  // namespace tandem
