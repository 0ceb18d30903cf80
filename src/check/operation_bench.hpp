// What the checks of single operations share: drawn inputs, their float64 copies, and the comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "src/check/operations.hpp"
#include "src/mirror/differentiable.hpp"

namespace tandem::operations {

inline constexpr double kU = 0x1p-24;  // unit roundoff of float32
inline constexpr std::int64_t kTokens = 48;
inline const std::vector<std::int32_t> kSampleBegin = {0, 29, 48};

// k roundings, or a sum of k terms in any order (Higham, Accuracy and Stability of Numerical Algorithms,
// lemma 3.1 and section 3.1).
inline double gamma(double k) { return k * kU / (1.0 - k * kU); }

struct Limits {
  double alarm, bound;
};
// A sum of n terms and `roundings` more. Errors of a sum's additions have either sign, so that six standard
// deviations of their walk, 6 sqrt(n) u, is where they are expected to stay (Higham and Mary 2019).
inline Limits sum_of(std::int64_t n, int roundings = 0) {
  const double bound = gamma(static_cast<double>(n + roundings));
  return {std::min(bound, (6.0 * std::sqrt(static_cast<double>(n)) + roundings) * kU), bound};
}
inline Limits rounded(int roundings) { return {gamma(roundings), gamma(roundings)}; }
inline constexpr Limits kExact = {0.0, 0.0};

mirror::Matrix wide(ConstMatrix m);
mirror::Row wide(std::span<const float> row);

// A frozen weight in native's memory.
class FloatWeight : public mirror::FrozenMatrix {
 public:
  explicit FloatWeight(ConstMatrix w) : w_(w) {}
  mirror::Index rows() const override { return w_.rows; }
  mirror::Index cols() const override { return w_.cols; }
  using FrozenMatrix::widen;
  mirror::Matrix widen(mirror::Index first, mirror::Index n) const override {
    return wide(w_.row_range(first, first + n));
  }

 private:
  ConstMatrix w_;
};

class Bench {
 public:
  explicit Bench(const OperationSubject& subject) : subject_(subject) {}

  const CpuContext& ctx() const { return subject_.ctx; }
  const ModelConfig& config() const { return subject_.config; }
  const Weights& weights() const { return subject_.weights; }
  const LoraLayout& lora() const { return subject_.lora; }
  const RunSpec& spec() const { return subject_.spec; }

  // Uniform in (-size, size), a function of the name.
  Matrix draw(const std::string& name, std::int64_t rows, std::int64_t cols, double size = 1.0);
  std::vector<std::int32_t> draw_ids(const std::string& name, std::int64_t count, std::int64_t below) const;
  // For results: NaN everywhere, so that what is not written shows.
  Matrix blank(std::int64_t rows, std::int64_t cols);
  // A copy, for operations in place.
  Matrix copy(ConstMatrix m);

  // size: of the same shape as reference.
  void compare(const std::string& name, Matrix native, const mirror::Matrix& reference,
               const mirror::Matrix& size, Limits limits);
  // Equal to the bit: any difference is an error of its own size.
  void compare_exact(const std::string& name, Matrix native, const mirror::Matrix& reference);

  std::vector<OperationCheck> take() { return std::move(results_); }

 private:
  const OperationSubject& subject_;
  std::deque<std::vector<float>> memory_;
  std::vector<OperationCheck> results_;
};

void check_products(Bench& bench);  // fused weights with their adapters, the head
void check_rows(Bench& bench);      // norms, rotary positions, SwiGLU, loss, embedding, bias, dropout
void check_attention(Bench& bench);
void check_state(Bench& bench);  // AdamW, the exact sum

}  // namespace tandem::operations
