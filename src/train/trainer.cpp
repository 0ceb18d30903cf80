#include "src/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/exact_reduction.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/fault.hpp"
#include "src/base/text.hpp"
#include "src/train/batch_limits.hpp"
#include "src/train/cpu_engine.hpp"
#include "src/train/deal.hpp"
#include "src/train/schedule.hpp"

namespace tandem {

namespace {

// In double, in token order.
double sum_of(std::span<const float> nll) {
  double sum = 0.0;
  for (const float x : nll) sum += static_cast<double>(x);
  return sum;
}

}  // namespace

Trainer::Trainer(const CpuContext& ctx, Communicator& comm, const RunSpec& spec, const Execution& execution,
                 const ModelConfig& config, const LoraLayout& lora, const SampleSet& train,
                 const SampleSet& held_out, std::unique_ptr<Engine> engine)
    : ctx_(ctx),
      comm_(comm),
      spec_(spec),
      execution_(execution),
      lora_(lora),
      train_(train),
      held_out_(held_out),
      order_(spec.seed_order, train.size(), spec.batch_global),
      engine_(std::move(engine)),
      tensor_norms_(lora.tensors().size()),
      update_norms_(lora.tensors().size()),
      ba_norms_(lora.tensors().size() / 2),
      held_out_ids_(static_cast<std::size_t>(held_out.size())) {
  const BatchLimits limits = batch_limits(train, held_out, execution.batch_micro);
  micro_batch_.reserve(std::max(limits.train_tokens, limits.eval_tokens), execution.batch_micro);
  std::iota(held_out_ids_.begin(), held_out_ids_.end(), std::int64_t{0});
  if (limits.eval_scored > 0 && execution.observe_probe > 0)
    probe_.emplace(ctx, held_out, execution.observe_probe, execution.batch_micro, config.n_layers,
                   config.hidden);
}

Trainer::Trainer(const CpuContext& ctx, Communicator& comm, const RunSpec& spec, const Execution& execution,
                 const ModelConfig& config, const Weights& weights, const LoraLayout& lora,
                 const SampleSet& train, const SampleSet& held_out, std::int64_t n_recomputed)
    : Trainer(ctx, comm, spec, execution, config, lora, train, held_out,
              std::make_unique<CpuEngine>(ctx, comm, config, weights, lora,
                                          batch_limits(train, held_out, execution.batch_micro),
                                          LoraDropout{spec.lora_dropout, spec.seed_dropout}, n_recomputed)) {}

std::string Trainer::where(std::int64_t t, std::span<const std::int64_t> samples) const {
  std::string text = cat("update ", t, ", samples");
  for (const std::int64_t s : samples) text += cat(" ", s);
  text += ", lines";
  for (const std::int64_t s : samples) text += cat(" ", train_.line(s));
  return text;
}

void Trainer::add_micro_batch(std::int64_t t, std::span<const std::int64_t> samples) {
  micro_batch_.pack(train_, samples, t);
  if (micro_batch_.n_scored() == 0) return;
  nll_ = sum_of(engine_->gradient(micro_batch_));
  if (planted("flipped_bit") && strikes(comm_.rank(), t)) {
    const auto at = static_cast<std::size_t>(lora_.tensors().back().offset);
    float& g = engine_->write(StateArray::kGradient)[at];
    g = std::bit_cast<float>(std::bit_cast<std::uint32_t>(g) ^ 1u << 24);
  }
  if (!std::isfinite(nll_))
    throw Error(ErrorKind::kInternal, cat("the loss is not finite: ", where(t, samples)));
  if (!engine_->add_nll(nll_))
    throw Error(ErrorKind::kInternal, cat("the loss is too large: ", nll_, ": ", where(t, samples)));
  const std::int64_t bad = engine_->add_gradient();
  if (bad >= 0)
    throw Error(ErrorKind::kInternal,
                cat("the gradient is not finite or too large: ", lora_.element_name(bad), " = ",
                    std::as_const(*this).gradient()[static_cast<std::size_t>(bad)], ": ", where(t, samples)));
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
  watched_.nll = scored ? nll_ : 0.0;
  if (scored)
    std::ranges::copy(gradient(), watched_gradient_.begin());
  else
    std::fill(watched_gradient_.begin(), watched_gradient_.end(), 0.0f);
}

UpdateResult Trainer::compute_gradient(std::int64_t t) {
  UpdateResult result;
  if (planted("lost_moments") && strikes(comm_.rank(), t))  // as after a resume that reads the weights alone
    for (const std::span<float> moments : {m(), v()}) std::fill(moments.begin(), moments.end(), 0.0f);
  result.lr = learning_rate(spec_, t);
  result.sample_ids = order_.batch(t);
  const std::int64_t micro = execution_.batch_micro, n = static_cast<std::int64_t>(result.sample_ids.size());
  deal(owner_, execution_.batch_deal, train_, result.sample_ids, micro, comm_.size());
  times_.gradient_tokens = 0;
  agree(comm_, [&] {
    const double start = now_s();
    throw_where_stopped();
    engine_->begin_update(std::count(owner_.begin(), owner_.end(), comm_.rank()), comm_.size());
    AddendCounter addends;
    for (std::size_t j = 0; j < owner_.size(); ++j) {
      if (owner_[j] != comm_.rank()) continue;
      throw_where_stopped();
      if (planted("dropped_rank") && strikes(comm_.rank(), t)) continue;
      if (addends.full()) {
        if (engine_->carry(comm_.size()).too_large >= 0)
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
    engine_->end_gradients();
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
  result.checksum = all_reduce_exact(comm_, *engine_, cat("update ", t), [&](std::int64_t i) {
    return i == nll_index ? std::string("the loss") : lora_.element_name(i);
  });
  const double reduced = now_s();
  times_.all_reduce_s = reduced - all_here;
  if (result.n_targets == 0) {
    result.loss = std::numeric_limits<double>::quiet_NaN();
    engine_->zero_gradient();
    std::fill(tensor_norms_.begin(), tensor_norms_.end(), 0.0);
    times_.step_s = now_s() - reduced;
    return result;
  }
  const auto count = static_cast<double>(result.n_targets);
  engine_->form_mean(count);
  result.loss = engine_->nll_sum() / count;
  engine_->gradient_squares(tensor_norms_);
  double squares = 0.0;
  for (double& norm : tensor_norms_) {
    squares += norm;
    norm = std::sqrt(norm);
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
  if (observed) engine_->keep_adapter();
  if (result.n_targets > 0) {
    ++steps_made_;
    engine_->step({result.lr, spec_.optim_beta1, spec_.optim_beta2,
                   planted("wrong_adam_eps") ? 1e-6 : spec_.optim_eps, spec_.optim_weight_decay, result.clip,
                   steps_made_});
  }
  if (observed) engine_->change_norms(update_norms_);
  result.adapter_checksum = engine_->checksum_of_adapter();
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
  engine_->ba_norms(ba_norms_);
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
      const std::span<const float> tokens = engine_->evaluate(micro_batch_, with_adapter, observer);
      if (observer) probe->take_nll(tokens);
      const double nll = sum_of(tokens);
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
