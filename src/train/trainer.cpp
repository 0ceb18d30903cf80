#include "src/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/exact_reduction.hpp"
#include "kernels/adamw.hpp"
#include "kernels/checksum.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/text.hpp"
#include "src/train/adapter_norms.hpp"
#include "src/train/batch_limits.hpp"
#include "src/train/deal.hpp"
#include "src/train/schedule.hpp"

namespace tandem {

Trainer::Trainer(const CpuContext& ctx, Communicator& comm, const RunSpec& spec, const Execution& execution,
                 const ModelConfig& config, const Weights& weights, const LoraLayout& lora,
                 const SampleSet& train, const SampleSet& held_out, std::int64_t n_recomputed)
    : ctx_(ctx),
      comm_(comm),
      spec_(spec),
      execution_(execution),
      lora_(lora),
      train_(train),
      held_out_(held_out),
      order_(spec.seed_order, train.size(), spec.batch_global),
      model_(ctx, config, weights, lora, batch_limits(train, held_out, execution.batch_micro),
             {spec.lora_dropout, spec.seed_dropout}),
      tensor_norms_(lora.tensors().size()),
      update_norms_(lora.tensors().size()),
      ba_norms_(lora.tensors().size() / 2),
      held_out_ids_(static_cast<std::size_t>(held_out.size())) {
  const BatchLimits limits = batch_limits(train, held_out, execution.batch_micro);
  arena_ = Arena(state_bytes(lora, limits), "adapter, moments and gradient");
  take_state(limits);
  model_.allocate(n_recomputed);
  micro_batch_.reserve(std::max(limits.train_tokens, limits.eval_tokens), execution.batch_micro);
  std::iota(held_out_ids_.begin(), held_out_ids_.end(), std::int64_t{0});
  if (limits.eval_scored > 0 && execution.observe_probe > 0)
    probe_.emplace(ctx, held_out, execution.observe_probe, execution.batch_micro, config.n_layers,
                   config.hidden);
}

void Trainer::take_state(const BatchLimits& limits) {
  const std::int64_t n = lora_.size();
  p_ = arena_.take<float>(n);
  m_ = arena_.take<float>(n);
  v_ = arena_.take<float>(n);
  gradient_ = arena_.take<float>(n);
  nll_ = arena_.take<float>(std::max(limits.train_scored, limits.eval_scored));
  const std::size_t mark = arena_.mark();
  before_ = arena_.take<float>(n);
  arena_.release(mark);
  sum_ = {arena_.take<std::int64_t>(ExactSumView::n_limbs(n + 1)).data(), n + 1};
}

std::size_t Trainer::state_bytes(const LoraLayout& lora, const BatchLimits& limits) {
  const auto n = static_cast<std::size_t>(lora.size());
  const auto n_nll = static_cast<std::size_t>(std::max(limits.train_scored, limits.eval_scored));
  return 4 * ArenaPlan::padded(n * sizeof(float)) + ArenaPlan::padded(n_nll * sizeof(float)) +
         ArenaPlan::padded(2 * (n + 1) * sizeof(std::int64_t));
}

std::string Trainer::where(std::int64_t t, std::span<const std::int64_t> samples) const {
  std::string text = cat("update ", t, ", samples");
  for (const std::int64_t s : samples) text += cat(" ", s);
  text += ", lines";
  for (const std::int64_t s : samples) text += cat(" ", train_.line(s));
  return text;
}

double Trainer::nll_sum() const {
  double sum = 0.0;
  for (std::int64_t n = 0; n < micro_batch_.n_scored(); ++n)
    sum += static_cast<double>(nll_[static_cast<std::size_t>(n)]);
  return sum;
}

void Trainer::add_micro_batch(std::int64_t t, std::span<const std::int64_t> samples) {
  micro_batch_.pack(train_, samples, t);
  if (micro_batch_.n_scored() == 0) return;
  model_.gradient(p_, micro_batch_, nll_, gradient_);
  if (planted("flipped_bit") && strikes(comm_.rank(), t)) {
    float& g = gradient_[static_cast<std::size_t>(lora_.tensors().back().offset)];
    g = std::bit_cast<float>(std::bit_cast<std::uint32_t>(g) ^ 1u << 24);
  }
  const double nll = nll_sum();
  if (!std::isfinite(nll))
    throw Error(ErrorKind::kInternal, cat("the loss is not finite: ", where(t, samples)));
  if (!exact_sum_add(sum_, lora_.size(), nll))
    throw Error(ErrorKind::kInternal, cat("the loss is too large: ", nll, ": ", where(t, samples)));
  const std::int64_t bad = exact_sum_add(sum_, 0, gradient_, ctx_.threads);
  if (bad >= 0)
    throw Error(ErrorKind::kInternal,
                cat("the gradient is not finite or too large: ", lora_.element_name(bad), " = ",
                    gradient_[static_cast<std::size_t>(bad)], ": ", where(t, samples)));
}

void Trainer::throw_where_stopped() const {
  if (stop_asked_ && stop_asked_()) throw Error(ErrorKind::kStopped, "stopped by a signal");
}

void Trainer::restore(std::int64_t steps_made, std::span<const double> update_norms) {
  steps_made_ = steps_made;
  if (update_norms.size() != update_norms_.size())
    throw Error(ErrorKind::kInput, "the checkpoint is of an adapter with another number of tensors");
  std::copy(update_norms.begin(), update_norms.end(), update_norms_.begin());
}

void Trainer::watch(std::int64_t index) {
  watched_gradient_.resize(static_cast<std::size_t>(lora_.size()));
  watched_ = {.index = index, .gradient = watched_gradient_};
  watching_ = true;
}

std::int64_t Trainer::n_micro_batches(std::int64_t t) {
  const auto n = static_cast<std::int64_t>(order_.batch(t).size());
  return (n + execution_.batch_micro - 1) / execution_.batch_micro;
}

void Trainer::keep_watched(bool scored) {
  watched_.nll = scored ? nll_sum() : 0.0;
  if (scored)
    std::copy(gradient_.begin(), gradient_.end(), watched_gradient_.begin());
  else
    std::fill(watched_gradient_.begin(), watched_gradient_.end(), 0.0f);
}

UpdateResult Trainer::compute_gradient(std::int64_t t) {
  UpdateResult result;
  if (planted("lost_moments") && strikes(comm_.rank(), t))  // as after a resume that reads the weights alone
    for (const std::span<float> moments : {m_, v_}) std::fill(moments.begin(), moments.end(), 0.0f);
  result.lr = learning_rate(spec_, t);
  result.sample_ids = order_.batch(t);
  const std::int64_t micro = execution_.batch_micro, n = static_cast<std::int64_t>(result.sample_ids.size());
  deal(owner_, execution_.batch_deal, train_, result.sample_ids, micro, comm_.size());
  times_.gradient_tokens = 0;
  agree(comm_, [&] {
    const double start = now_s();
    throw_where_stopped();
    exact_sum_clear(sum_, ctx_.threads);
    AddendCounter addends;
    for (std::size_t j = 0; j < owner_.size(); ++j) {
      if (owner_[j] != comm_.rank()) continue;
      throw_where_stopped();
      if (planted("dropped_rank") && strikes(comm_.rank(), t)) continue;
      if (addends.full()) {
        if (exact_sum_carry(sum_, comm_.size(), ctx_.threads).too_large >= 0)
          throw Error(ErrorKind::kInternal, cat("the gradient's sum is too large: update ", t));
        addends.carried();
      }
      addends.add();
      const auto begin = static_cast<std::int64_t>(j) * micro;
      add_micro_batch(
          t, result.sample_ids.subspan(static_cast<std::size_t>(begin),
                                       static_cast<std::size_t>(std::min(n, begin + micro) - begin)));
      if (watching_ && watched_.index == static_cast<std::int64_t>(j))
        keep_watched(micro_batch_.n_scored() > 0);
      if (micro_batch_.n_scored() > 0) times_.gradient_tokens += micro_batch_.n_tokens();
    }
    times_.gradient_s = now_s() - start;
  });
  const double all_here = now_s();
  if (std::exchange(watching_, false)) {
    watched_.owner = owner_[static_cast<std::size_t>(watched_.index)];
    watched_.begin = watched_.index * micro;
    watched_.end = std::min(n, watched_.begin + micro);
  }
  for (const std::int64_t s : result.sample_ids) {
    result.n_targets += train_.n_scored(s);
    result.n_tokens += train_.length(s);
  }
  const std::int64_t nll_index = lora_.size();
  result.checksum = all_reduce_exact(
      comm_, sum_, cat("update ", t),
      [&](std::int64_t i) { return i == nll_index ? std::string("the loss") : lora_.element_name(i); },
      ctx_.threads);
  const double reduced = now_s();
  times_.all_reduce_s = reduced - all_here;
  if (result.n_targets == 0) {
    result.loss = std::numeric_limits<double>::quiet_NaN();
    std::fill(gradient_.begin(), gradient_.end(), 0.0f);
    std::fill(tensor_norms_.begin(), tensor_norms_.end(), 0.0);
    times_.step_s = now_s() - reduced;
    return result;
  }
  const auto count = static_cast<double>(result.n_targets);
  exact_sum_mean(sum_, 0, count, gradient_, ctx_.threads);
  result.loss = exact_sum_value(sum_, nll_index) / count;
  double squares = 0.0;
  for (std::size_t i = 0; i < tensor_norms_.size(); ++i) {
    const LoraTensor& tensor = lora_.tensors()[i];
    const double sum = sum_of_squares(ctx_, gradient().subspan(static_cast<std::size_t>(tensor.offset),
                                                               static_cast<std::size_t>(tensor.size())));
    tensor_norms_[i] = std::sqrt(sum);
    squares += sum;
  }
  result.grad_norm = std::sqrt(squares);
  result.clip = clip_factor(result.grad_norm, spec_.optim_clip);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
    throw AgreedError(ErrorKind::kInternal,
                      cat("loss ", result.loss, " or gradient norm ", result.grad_norm,
                          " is not finite: ", where(t, result.sample_ids)),
                      0);
  times_.step_s = now_s() - reduced;
  return result;
}

void Trainer::step(std::int64_t t, UpdateResult& result, bool observed, bool note, bool raise) {
  const double start = now_s();
  if (observed) std::copy(p_.begin(), p_.end(), before_.begin());
  if (result.n_targets > 0) {
    ++steps_made_;
    adamw(
        ctx_, p_, m_, v_, gradient_,
        {result.lr, spec_.optim_beta1, spec_.optim_beta2, planted("wrong_adam_eps") ? 1e-6 : spec_.optim_eps,
         spec_.optim_weight_decay, result.clip, steps_made_});
  }
  if (observed) change_norms(ctx_, update_norms_, lora_, p_, before_);
  result.adapter_checksum = tandem::adapter_checksum(lora_.spans(p_), ctx_.threads);
  times_.step_s += now_s() - start;
  struct Said {
    std::uint64_t checksum;
    std::uint32_t note, raise;
  };
  const std::vector<Said> all =
      comm_.all_gather_value(Said{result.adapter_checksum, note ? 1u : 0u, raise ? 1u : 0u});
  result.noted = all[0].note != 0;
  for (const Said& said : all) result.raised = result.raised || said.raise != 0;
  for (const Said& said : all)
    if (said.checksum != all[0].checksum)
      return require_equal(comm_, cat("the adapter's checksum after update ", t), result.adapter_checksum);
}

std::span<const double> Trainer::ba_norms() {
  tandem::ba_norms(ctx_, ba_norms_, lora_, p_);
  return ba_norms_;
}

EvalResult Trainer::evaluate(bool with_adapter) {
  EvalResult result;
  Probe* const probe = with_adapter && probe_ ? &*probe_ : nullptr;
  if (probe) probe->clear();
  std::array<std::int64_t, ExactSumView::n_limbs(1)> limbs{};
  const ExactSumView sum{limbs.data(), 1};
  const std::int64_t micro = execution_.batch_micro;
  deal(owner_, execution_.batch_deal, held_out_, held_out_ids_, micro, comm_.size());
  times_.evaluation_tokens = 0;
  agree(comm_, [&] {
    const double start = now_s();
    throw_where_stopped();
    AddendCounter addends;
    for (std::size_t j = 0; j < owner_.size(); ++j) {
      if (owner_[j] != comm_.rank()) continue;
      throw_where_stopped();
      if (addends.full()) {
        (void)exact_sum_carry(sum, comm_.size(), 1);
        addends.carried();
      }
      addends.add();
      const auto begin = static_cast<std::int64_t>(j) * micro;
      const std::int64_t end = std::min(held_out_.size(), begin + micro);
      micro_batch_.pack(held_out_,
                        std::span(held_out_ids_)
                            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
      PassObserver* const observer =
          probe ? probe->watch(static_cast<std::int64_t>(j), micro_batch_) : nullptr;
      model_.evaluate(with_adapter && !planted("eval_without_adapter") ? std::span<const float>(p_)
                                                                       : std::span<const float>(),
                      micro_batch_, nll_, observer);
      if (observer) probe->take_nll(nll_);
      const double nll = nll_sum();
      if (!exact_sum_add(sum, 0, nll))
        throw Error(ErrorKind::kInternal,
                    cat("the held-out loss is not finite or too large: ", nll, ": held-out lines ",
                        held_out_.line(begin), " to ", held_out_.line(end - 1)));
      times_.evaluation_tokens += micro_batch_.n_tokens();
    }
    times_.evaluation_s = now_s() - start;
  });
  (void)all_reduce_exact(
      comm_, sum, "evaluation", [](std::int64_t) { return std::string("the held-out loss"); }, 1);
  if (probe) probe->gather(comm_);
  result.nll_sum = exact_sum_value(sum, 0);
  for (std::int64_t i = 0; i < held_out_.size(); ++i) result.n_tokens += held_out_.n_scored(i);
  return result;
}

}  // namespace tandem
