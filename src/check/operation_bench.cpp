#include "src/check/operation_bench.hpp"

#include <algorithm>
#include <limits>

#include "src/base/random.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace operations {

namespace {

constexpr std::uint64_t kSeed = 0x7461'6e64'656d'0002;

Matrix in_memory(std::deque<std::vector<float>>& memory, std::int64_t rows, std::int64_t cols, float value) {
  return {memory.emplace_back(static_cast<std::size_t>(rows * cols), value).data(), rows, cols};
}

}  // namespace

mirror::Matrix wide(ConstMatrix m) {
  mirror::Matrix result(m.rows, m.cols);
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.cols; ++c) result(r, c) = static_cast<double>(m.row(r)[c]);
  return result;
}

mirror::Row wide(std::span<const float> row) {
  mirror::Row result(static_cast<mirror::Index>(row.size()));
  for (std::size_t i = 0; i < row.size(); ++i)
    result(static_cast<mirror::Index>(i)) = static_cast<double>(row[i]);
  return result;
}

Matrix Bench::draw(const std::string& name, std::int64_t rows, std::int64_t cols, double size) {
  const Matrix m = in_memory(memory_, rows, cols, 0.0f);
  const RandomStream stream(kSeed, "check." + name);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    m.data[i] = static_cast<float>(size * (2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0));
  return m;
}

std::vector<std::int32_t> Bench::draw_ids(const std::string& name, std::int64_t count,
                                          std::int64_t below) const {
  const RandomStream stream(kSeed, "check." + name);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(stream.draw(static_cast<std::uint64_t>(i)) %
                                            static_cast<std::uint64_t>(below)));
  return ids;
}

Matrix Bench::blank(std::int64_t rows, std::int64_t cols) {
  return in_memory(memory_, rows, cols, std::numeric_limits<float>::quiet_NaN());
}

Matrix Bench::copy(ConstMatrix m) {
  const Matrix result = blank(m.rows, m.cols);
  for (std::int64_t r = 0; r < m.rows; ++r) std::copy_n(m.row(r), m.cols, result.row(r));
  return result;
}

void Bench::compare(const std::string& name, Matrix native, const mirror::Matrix& reference,
                    const mirror::Matrix& size, Limits limits) {
  if (subject_.disturb)
    subject_.disturb(name, native, [&](std::int64_t r, std::int64_t c) { return limits.alarm * size(r, c); });
  OperationCheck check{name, 0.0, limits.alarm, limits.bound, ""};
  for (std::int64_t r = 0; r < native.rows; ++r)
    for (std::int64_t c = 0; c < native.cols; ++c) {
      // Beside 2^-126 float32 has no normal numbers.
      const double error =
          std::abs(static_cast<double>(native.row(r)[c]) - reference(r, c)) / (size(r, c) + 0x1p-126);
      if (!(error <= check.error) && !std::isnan(check.error)) {
        check.error = error;
        check.where = cat("[", r, ", ", c, "]");
      }
    }
  results_.push_back(std::move(check));
}

void Bench::compare_exact(const std::string& name, Matrix native, const mirror::Matrix& reference) {
  compare(name, native, reference, mirror::Matrix::Ones(reference.rows(), reference.cols()), kExact);
}

}  // namespace operations

std::vector<OperationCheck> check_operations(const OperationSubject& subject) {
  operations::Bench bench(subject);
  operations::check_products(bench);
  operations::check_attention(bench);
  operations::check_rows(bench);
  operations::check_state(bench);
  return bench.take();
}

}  // namespace tandem
