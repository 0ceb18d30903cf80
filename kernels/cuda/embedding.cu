#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/embedding.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kN = kUnit<float>;

template <class T>
TANDEM_DEVICE void copy_row(float* to, const T* from, std::int64_t cols) {
  for (std::int64_t c = thread_x() * kN; c < cols; c += thread_count() * kN) {
    float v[kN];
    load(v, from + c, cols - c);
    store(to + c, v, cols - c);
  }
}

template <class T>
TANDEM_KERNEL gather_kernel(Matrix y, MatrixView<const T> table, const std::int32_t* index) {
  copy_row(y.row(block_x()), table.row(index[block_x()]), y.cols);
}

TANDEM_KERNEL zero_kernel(Matrix x) {
  constexpr float kZeros[kN] = {};
  for (std::int64_t c = thread_x() * kN; c < x.cols; c += thread_count() * kN)
    store(x.row(block_x()) + c, kZeros, x.cols - c);
}

TANDEM_KERNEL scatter_kernel(Matrix x, ConstMatrix y, const std::int32_t* index) {
  copy_row(x.row(index[block_x()]), y.row(block_x()), y.cols);
}

template <class T>
void gather(const CudaContext& ctx, Matrix y, MatrixView<const T> table,
            std::span<const std::int32_t> index) {
  launch(ctx, "gather_rows", gather_kernel<T>, {y.rows}, row_threads(y.cols, kN), 0, y, table, index.data());
}

}  // namespace

void gather_rows(const CudaContext& ctx, Matrix y, ConstMatrix table, std::span<const std::int32_t> index) {
  gather(ctx, y, table, index);
}
void gather_rows(const CudaContext& ctx, Matrix y, ConstBf16Matrix table,
                 std::span<const std::int32_t> index) {
  gather(ctx, y, table, index);
}

void scatter_rows(const CudaContext& ctx, Matrix x, ConstMatrix y, std::span<const std::int32_t> index) {
  launch(ctx, "zero_rows", zero_kernel, {x.rows}, row_threads(x.cols, kN), 0, x);
  launch(ctx, "scatter_rows", scatter_kernel, {y.rows}, row_threads(y.cols, kN), 0, x, y, index.data());
}

}  // namespace tandem
