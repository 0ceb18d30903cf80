// How far native's gradient may lie from the mirror's: measured, not chosen. The reference itself is computed
// with every operation's output rounded at random to native's precision, several times; what that does to a
// tensor, three times over, is what native may show (VALIDATION, "Per step, lock-step").
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/mirror/mirror.hpp"

namespace tandem {

struct Thresholds {
  static constexpr int kDraws = 8;
  static constexpr double kMargin = 3.0;

  std::vector<double> relative_error;  // [P] of d = |g - g*| / |g*|
  // [P] of |g - g*| / sqrt(sum of squared norms of the tokens' terms of g*): errors of tokens are
  // independent, so where terms cancel more than in the calibration's sample, d may be larger.
  std::vector<double> term_error;
  std::vector<double> bias;  // [P] of |s - 1|, beside what d alone explains
  double loss = 0.0;         // of |L - L*| / |L*|
  bool from_file = false;
  std::string not_kept = {};  // why the file could not be written; "": it could, or none is wanted

  // The larger of both, number by number.
  void raise_to(const Thresholds& other);
};

// Unit roundoff of a precision key: what its products' inputs are rounded by.
double unit_roundoff(const std::string& precision);

// What rounding does to the gradient of these samples with this adapter, in update t (dropout). Costs
// kDraws + 1 gradients of them.
Thresholds measure_thresholds(const mirror::Mirror& mirror, const std::string& precision,
                              const mirror::Tensors& adapter, std::span<const std::int64_t> sample_ids,
                              std::int64_t t);

// With B drawn small, so that the gradients of A are not zero, on one sample of the first update. Costs
// kDraws + 1 gradients of that sample. `folder`, unless empty, keeps the result for the next run of the same
// model, adapter shape, sample and precision; a file there that cannot be read is computed anew, and a folder
// that takes none is told of in not_kept.
Thresholds calibrate(const mirror::Mirror& mirror, const std::string& precision,
                     const std::filesystem::path& folder);

}  // namespace tandem
