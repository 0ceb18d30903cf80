// NCCL's release; 0 where this program has none. Numbered as NCCL does: 22809 is 2.28.9.
#pragma once

namespace tandem::cuda {

int nccl_built_version();
int nccl_version();  // throws kDevice where NCCL does not say

}  // namespace tandem::cuda
