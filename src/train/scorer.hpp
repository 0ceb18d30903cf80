// The loss of samples, token by token, by one process and without a run. No dropout; the same arithmetic as a
// run's evaluations, so the same bits for the same batch.micro.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/samples.hpp"
#include "kernels/context.hpp"
#include "src/model/model_and_adapter.hpp"
#include "src/model/transformer.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

// Sums, and the nll of every scored token.
struct Scores {
  EvalResult result;
  std::vector<float> nll;           // samples one after the other
  std::vector<std::int64_t> begin;  // [S+1]: sample i's are nll[begin[i], begin[i+1])

  std::span<const float> of(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return std::span(nll).subspan(static_cast<std::size_t>(begin[at]),
                                  static_cast<std::size_t>(begin[at + 1] - begin[at]));
  }
};

class Scorer {
 public:
  // `micro` samples are packed into a row. The references must outlive this object.
  Scorer(const CpuContext& ctx, const ModelAndAdapter& model, const SampleSet& samples, std::int64_t micro);

  // progress: called with the share of the samples that is done. Throws kInternal, naming lines, for a loss
  // that is no number.
  Scores score(bool with_adapter, const std::function<void(double)>& progress = {});

 private:
  const ModelAndAdapter& model_;
  const SampleSet& samples_;
  std::int64_t micro_;
  Transformer transformer_;
  MicroBatch batch_;
};

}  // namespace tandem
