#include "kernels/cuda/launch.hpp"
#include "tests/emulation/attention_steps.hpp"

#define barrier barrier_unless_left_out
#define warp_barrier warp_barrier_unless_left_out
#define cp_async_wait cp_async_wait_unless_left_out
#define attention attention_with_steps
#include "kernels/cuda/attention_bf16.cu"
#undef attention
#undef cp_async_wait
#undef warp_barrier
#undef barrier

namespace tandem::testing {
namespace {

namespace with_steps = cuda::attention_with_steps;

TEST(AttentionStepsBf16, ABarrierOrAWaitLeftOutIsSeen) {
  expect_every_step_is_needed<Bf16, with_steps::ForwardOperands<Bf16>, with_steps::BackwardOperands<Bf16>>(
      kBf16Roundoffs, with_steps::forward, with_steps::backward, 9);
}

}  // namespace
}  // namespace tandem::testing
