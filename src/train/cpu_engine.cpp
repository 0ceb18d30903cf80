#include "src/train/cpu_engine.hpp"

#include <algorithm>

#include "kernels/checksum.hpp"
#include "src/base/fault.hpp"
#include "src/train/adapter_norms.hpp"

namespace tandem {

CpuEngine::CpuEngine(const CpuContext& ctx, Communicator& comm, const ModelConfig& config,
                     const Weights& weights, const LoraLayout& lora, const BatchLimits& limits,
                     const LoraDropout& dropout, std::int64_t n_recomputed)
    : ctx_(ctx),
      comm_(comm),
      weights_(weights),
      lora_(lora),
      model_(ctx, config, weights.views(), lora, limits, dropout),
      arena_(state_bytes(lora, limits), "adapter, moments and gradient") {
  const std::int64_t n = lora.size();
  for (std::span<float>* array : {&p_, &m_, &v_, &gradient_}) *array = arena_.take<float>(n);
  nll_ = arena_.take<float>(std::max(limits.train_scored, limits.eval_scored));
  const std::size_t mark = arena_.mark();
  before_ = arena_.take<float>(n);
  arena_.release(mark);
  sum_ = {arena_.take<std::int64_t>(ExactSumView::n_limbs(n + 1)).data(), n + 1};
  model_.allocate(n_recomputed);
}

std::size_t CpuEngine::state_bytes(const LoraLayout& lora, const BatchLimits& limits) {
  const auto n = static_cast<std::size_t>(lora.size());
  const auto n_nll = static_cast<std::size_t>(std::max(limits.train_scored, limits.eval_scored));
  return 4 * ArenaPlan::padded(n * sizeof(float)) + ArenaPlan::padded(n_nll * sizeof(float)) +
         ArenaPlan::padded(2 * (n + 1) * sizeof(std::int64_t));
}

std::span<float> CpuEngine::write(StateArray array) {
  switch (array) {
    case StateArray::kAdapter:
      return p_;
    case StateArray::kM:
      return m_;
    case StateArray::kV:
      return v_;
    case StateArray::kGradient:
      break;
  }
  return gradient_;
}

void CpuEngine::begin_update(std::int64_t, int) { exact_sum_clear(sum_, ctx_.threads); }

std::span<const float> CpuEngine::gradient(const MicroBatch& batch) {
  model_.gradient(p_, batch, nll_, gradient_);
  return nll_.first(static_cast<std::size_t>(batch.n_scored()));
}

std::int64_t CpuEngine::add_gradient() { return exact_sum_add(sum_, 0, gradient_, ctx_.threads); }

bool CpuEngine::add_nll(double nll) { return exact_sum_add(sum_, lora_.size(), nll); }

ExactSumCarry CpuEngine::carry(int ranks) { return exact_sum_carry(sum_, ranks, ctx_.threads); }

void CpuEngine::all_reduce(std::string_view) { comm_.all_reduce_sum(sum_.all()); }

void CpuEngine::form_mean(double count) { exact_sum_mean(sum_, 0, count, gradient_, ctx_.threads); }

double CpuEngine::nll_sum() { return exact_sum_value(sum_, lora_.size()); }

void CpuEngine::zero_gradient() { std::fill(gradient_.begin(), gradient_.end(), 0.0f); }

void CpuEngine::gradient_squares(std::span<double> squares) {
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const LoraTensor& tensor = lora_.tensors()[i];
    squares[i] = sum_of_squares(ctx_, gradient_.subspan(static_cast<std::size_t>(tensor.offset),
                                                        static_cast<std::size_t>(tensor.size())));
  }
}

void CpuEngine::keep_adapter() { std::copy(p_.begin(), p_.end(), before_.begin()); }

void CpuEngine::step(const AdamwFactors& factors) { adamw(ctx_, p_, m_, v_, gradient_, factors); }

void CpuEngine::change_norms(std::span<double> norms) {
  tandem::change_norms(ctx_, norms, lora_, p_, before_);
}

void CpuEngine::ba_norms(std::span<double> norms) { tandem::ba_norms(ctx_, norms, lora_, p_); }

std::string CpuEngine::base_digest(std::size_t i) { return weights_.memory_digest(i); }

std::uint64_t CpuEngine::checksum_of_adapter() { return adapter_checksum(lora_.spans(p_), ctx_.threads); }

std::span<const float> CpuEngine::evaluate(const MicroBatch& batch, bool with_adapter,
                                           PassObserver* observer) {
  model_.evaluate(with_adapter && !planted("eval_without_adapter") ? std::span<const float>(p_)
                                                                   : std::span<const float>(),
                  batch, nll_, observer);
  return nll_.first(static_cast<std::size_t>(batch.n_scored()));
}

}  // namespace tandem
