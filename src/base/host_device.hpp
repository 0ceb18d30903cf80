// TANDEM_HOST_DEVICE: a function that kernels of a device call too, where its compiler reads this.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TANDEM_HOST_DEVICE inline
#endif
