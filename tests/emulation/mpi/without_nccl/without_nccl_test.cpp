#include <gtest/gtest.h>

#include "comm/device_reduction.hpp"
#include "comm/nccl/nccl_version.hpp"

namespace tandem {
namespace {

TEST(WithoutNccl, TheProgramSaysWhatToDo) {
  EXPECT_EQ(cuda::nccl_built_version(), 0);
  EXPECT_EQ(cuda::nccl_version(), 0);
  SingleCommunicator comm;
  const CudaContext ctx(0);
  try {
    nccl_reduction(comm, ctx);
    FAIL() << "there is no NCCL";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_STREQ(
        error.what(),
        "this program was built without NCCL: let sums over ranks go over MPI (gpu = shared), or build where "
        "nccl.h and libnccl are");
  }
}

}  // namespace
}  // namespace tandem
