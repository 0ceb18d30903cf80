// The machine instructions that C++ has no words for: asynchronous copies into shared memory, matrix loads
// and tensor-core products of bfloat16 (PTX ISA 8: cp.async, ldmatrix, mma.sync.m16n8k16; sm_80 or newer).
// Under emulation each has a twin that computes the same from what the threads of a warp hand each other.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/port.hpp"

namespace tandem::cuda {

#ifdef TANDEM_EMULATED
namespace emulated {
// tests/emulation/ptx_twins.cpp
void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed);
void multiply_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
}  // namespace emulated
#endif

// 16 bytes from device memory to shared memory, zeros where not `valid` (then `source` is not read). Both
// 16-byte aligned. There only after cp_async_wait and, for other threads, a barrier.
TANDEM_DEVICE void cp_async_16(void* shared, const void* source, bool valid) {
#ifdef TANDEM_EMULATED
  emulated::copy_later(shared, source, valid ? 16 : 0, 16);
#else
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(source), "r"(valid ? 16 : 0)
               : "memory");
#endif
}

// The same of 4 bytes, aligned to 4.
TANDEM_DEVICE void cp_async_4(void* shared, const void* source, bool valid) {
#ifdef TANDEM_EMULATED
  emulated::copy_later(shared, source, valid ? 4 : 0, 4);
#else
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(source), "r"(valid ? 4 : 0)
               : "memory");
#endif
}

// Closes a group of copies.
TANDEM_DEVICE void cp_async_commit() {
#ifdef TANDEM_EMULATED
  emulated::close_copies();
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Waits until this thread's groups have arrived, all but the newest `kPending`.
template <int kPending>
TANDEM_DEVICE void cp_async_wait() {
#ifdef TANDEM_EMULATED
  emulated::finish_copies(kPending);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#endif
}

// Four 8x8 matrices of 16-bit numbers: lane l gives the address of row l%8 of matrix l/8 (16 bytes, aligned)
// and gets of matrix i, in r[i], the elements (l/4, 2*(l%4)) and, in the upper half, (l/4, 2*(l%4)+1).
TANDEM_DEVICE void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
#ifdef TANDEM_EMULATED
  emulated::load_matrices(r, row, false);
#else
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
#endif
}

// The same of the transposed matrices: elements (2*(l%4), l/4) and (2*(l%4)+1, l/4).
TANDEM_DEVICE void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
#ifdef TANDEM_EMULATED
  emulated::load_matrices(r, row, true);
#else
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
#endif
}

// d += a b, a [16,16] and b [16,8] bfloat16, d [16,8] float32. With g = lane/4, t = 2*(lane%4), a lane holds
//   d[0..1] = d(g, t..t+1), d[2..3] = d(g+8, t..t+1)
//   a[0] = a(g, t..t+1), a[1] = a(g+8, t..t+1), a[2] = a(g, t+8..t+9), a[3] = a(g+8, t+8..t+9)
//   b[0] = b(t..t+1, g), b[1] = b(t+8..t+9, g)       the first of two in the lower half of the word.
TANDEM_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t b0,
                                     const std::uint32_t b1) {
#ifdef TANDEM_EMULATED
  emulated::multiply_m16n8k16(d, a, b0, b1);
#else
  // volatile: the whole warp has to be there, so it may not move into a branch.
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

TANDEM_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                     const std::uint32_t (&b)[2]) {
  mma_m16n8k16_bf16(d, a, b[0], b[1]);
}

// 2^x within 2 units in the last place, 0 for -infinity; results below the normal numbers may be 0.
TANDEM_DEVICE float exp2_approx(float x) {
#ifdef TANDEM_EMULATED
  return std::exp2(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#endif
}

// pack() of port.hpp in one instruction; a NaN's other bits are not kept.
TANDEM_DEVICE std::uint32_t pack_rounded(float first, float second) {
#ifdef TANDEM_EMULATED
  return pack(first, second);
#else
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(second), "f"(first));
  return word;
#endif
}

}  // namespace tandem::cuda
