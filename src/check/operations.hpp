// Level 1: every operation that native computes with, forward and backward, against the mirror's in float64.
//
// Inputs are drawn from a seed; weights are native's own, of layer 0, and handed to both sides, so that what
// was loaded or configured wrongly does not show here. Shapes are the model's, on 48 tokens in two packed
// samples; of the head at most 4,096 rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/observations.hpp"
#include "kernels/context.hpp"
#include "src/base/matrix.hpp"
#include "src/model/config.hpp"
#include "src/model/lora.hpp"
#include "src/model/weights.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

// error: the largest over the elements of |native - mirror| / size, where size says how large the terms are
// that the element is made of (of a product: |x| |w|^T). bound: no right computation in float32 comes above
// it; 0 where the result is exact. alarm: none is expected above it. NaN: native has one.
struct OperationCheck {
  std::string name;
  double error = 0.0, alarm = 0.0, bound = 0.0;
  std::string where;  // the element of the largest error: "[3, 17]"

  Verdict verdict() const {
    if (!(error <= bound)) return bound == 0.0 ? Verdict::kExact : Verdict::kBound;
    return error <= alarm ? Verdict::kPass : Verdict::kCalibrated;
  }
};

// What is looked at. The references must outlive the check.
struct OperationSubject {
  const CpuContext& ctx;
  const ModelConfig& config;
  const Weights& weights;
  const LoraLayout& lora;
  const RunSpec& spec;
  // For tests: may change native's result before it is looked at; allowed(row, column) is the error at which
  // the alarm goes off there.
  using Allowed = std::function<double(std::int64_t, std::int64_t)>;
  std::function<void(const std::string& name, Matrix result, const Allowed& allowed)> disturb = {};
};

std::vector<OperationCheck> check_operations(const OperationSubject& subject);

}  // namespace tandem
