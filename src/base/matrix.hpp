// Row-major matrix views: pointer, rows, columns, distance between rows in elements. They own nothing.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/base/bf16.hpp"
#include "src/base/host_device.hpp"

namespace tandem {

template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_) : MatrixView(data_, rows_, cols_, cols_) {}
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  // A view of mutable elements is also one of constant elements.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  MatrixView(const MatrixView<U>& other) : MatrixView(other.data, other.rows, other.cols, other.stride) {}

  TANDEM_HOST_DEVICE T* row(std::int64_t r) const { return data + r * stride; }
  MatrixView row_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin * stride, end - begin, cols, stride};
  }
  MatrixView col_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin, rows, end - begin, stride};
  }
};

using Matrix = MatrixView<float>;
using ConstMatrix = MatrixView<const float>;
using Bf16Matrix = MatrixView<Bf16>;
using ConstBf16Matrix = MatrixView<const Bf16>;

}  // namespace tandem
