// Twins of the instructions of ptx.hpp that a whole warp executes.
#include <cstring>

#include "kernels/cuda/ptx.hpp"

namespace tandem::cuda::emulated {

void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed) {
  check_aligned(row, 16);
  const LaneBytes* const rows = gather("ldmatrix", &row, sizeof(row));
  const auto element = [&](int matrix, int i, int j) {
    const char* from = nullptr;
    std::memcpy(&from, rows[8 * matrix + i], sizeof(from));
    std::uint16_t value;
    std::memcpy(&value, from + 2 * j, sizeof(value));
    return static_cast<std::uint32_t>(value);
  };
  const int g = lane() / 4, t = 2 * (lane() % 4);
  for (int i = 0; i < 4; ++i)
    r[i] = transposed ? element(i, t, g) | element(i, t + 1, g) << 16
                      : element(i, g, t) | element(i, g, t + 1) << 16;
}

// A product of two bfloat16 numbers is exact in float32; the sums are rounded one after the other.
void multiply_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Operands {
    std::uint32_t a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}}, of_row[4], of_col[2][4];
  const LaneBytes* const all = gather("mma", &mine, sizeof(mine));
  const int g = lane() / 4, t = 2 * (lane() % 4);
  for (int pair = 0; pair < 4; ++pair) {
    std::memcpy(&of_row[pair], all[4 * g + pair], sizeof(Operands));
    std::memcpy(&of_col[0][pair], all[4 * t + pair], sizeof(Operands));
    std::memcpy(&of_col[1][pair], all[4 * (t + 1) + pair], sizeof(Operands));
  }
  for (int lower = 0; lower < 2; ++lower)      // rows g and g + 8
    for (int right = 0; right < 2; ++right) {  // columns t and t + 1
      float sum = d[2 * lower + right];
      for (int half = 0; half < 2; ++half)  // k from 0, from 8
        for (int pair = 0; pair < 4; ++pair) {
          const std::uint32_t x = of_row[pair].a[lower + 2 * half], y = of_col[right][pair].b[half];
          sum += unpack_first(x) * unpack_first(y);
          sum += unpack_second(x) * unpack_second(y);
        }
      d[2 * lower + right] = sum;
    }
}

}  // namespace tandem::cuda::emulated
