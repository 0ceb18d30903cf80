#include "kernels/cuda/launch.hpp"
#include "tests/emulation/attention_steps.hpp"

#define barrier barrier_unless_left_out
#define warp_barrier warp_barrier_unless_left_out
#define cp_async_wait cp_async_wait_unless_left_out
#define attention attention_with_steps
#include "kernels/cuda/attention_f32.cu"
#undef attention
#undef cp_async_wait
#undef warp_barrier
#undef barrier

namespace tandem::testing {
namespace {

namespace with_steps = cuda::attention_with_steps;

TEST(AttentionStepsF32, ABarrierOrAWaitLeftOutIsSeen) {
  expect_every_step_is_needed<float, with_steps::ForwardOperands<float>, with_steps::BackwardOperands<float>>(
      kF32Roundoffs, with_steps::forward, with_steps::backward, 12);
}

}  // namespace
}  // namespace tandem::testing
