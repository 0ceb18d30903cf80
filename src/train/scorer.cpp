#include "src/train/scorer.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/exact_sum.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/batch_limits.hpp"

namespace tandem {

Scorer::Scorer(const CpuContext& ctx, const ModelAndAdapter& model, const SampleSet& samples,
               std::int64_t micro)
    : model_(model),
      samples_(samples),
      micro_(micro),
      transformer_(ctx, model.model.config, model.model.weights.views(), model.layout(),
                   batch_limits({}, samples, micro)) {
  transformer_.allocate();
}

Scores Scorer::score(bool with_adapter, const std::function<void(double)>& progress) {
  Scores scores;
  scores.begin.push_back(0);
  for (std::int64_t i = 0; i < samples_.size(); ++i)
    scores.begin.push_back(scores.begin.back() + samples_.n_scored(i));
  scores.nll.resize(static_cast<std::size_t>(scores.begin.back()));
  std::array<std::int64_t, ExactSumView::n_limbs(1)> limbs{};
  const ExactSumView sum{limbs.data(), 1};
  AddendCounter addends;
  std::vector<std::int64_t> indices;
  for (std::int64_t begin = 0; begin < samples_.size(); begin += micro_) {
    const std::int64_t end = std::min(samples_.size(), begin + micro_);
    indices.resize(static_cast<std::size_t>(end - begin));
    std::iota(indices.begin(), indices.end(), begin);
    batch_.pack(samples_, indices);
    const auto from = scores.begin[static_cast<std::size_t>(begin)],
               to = scores.begin[static_cast<std::size_t>(end)];
    const std::span<float> nll =
        std::span(scores.nll).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
    transformer_.evaluate(with_adapter ? model_.values() : std::span<const float>(), batch_, nll);
    double micro_sum = 0.0;
    for (const float value : nll) micro_sum += static_cast<double>(value);
    if (addends.full()) {
      (void)exact_sum_carry(sum, 1, 1);
      addends.carried();
    }
    addends.add();
    if (!exact_sum_add(sum, 0, micro_sum))
      throw Error(ErrorKind::kInternal, cat("the loss is not finite or too large: ", micro_sum, ": lines ",
                                            samples_.line(begin), " to ", samples_.line(end - 1)));
    if (progress) progress(static_cast<double>(end) / static_cast<double>(samples_.size()));
  }
  (void)exact_sum_carry(sum, 1, 1);
  scores.result.nll_sum = exact_sum_value(sum, 0);
  scores.result.n_tokens = scores.begin.back();
  return scores;
}

}  // namespace tandem
