#include "src/train/cuda/cuda_engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/attention.hpp"
#include "kernels/checksum.hpp"
#include "kernels/rounding.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/adapter_norms.hpp"
#include "src/train/cuda/host_observer.hpp"
#include "src/train/format_numbers.hpp"

namespace tandem {

namespace {

// What libraries and the driver take beside what is planned here.
constexpr std::int64_t kUnplanned = std::int64_t{512} << 20;

std::string gib(std::int64_t bytes) { return formatted("%.2f GiB", static_cast<double>(bytes) / 0x1p30); }

std::int64_t most_scored(const BatchLimits& limits) {
  return std::max(limits.train_scored, limits.eval_scored);
}

}  // namespace

template <class Real>
CudaEngine<Real>::CudaEngine(const EngineParts& parts, std::unique_ptr<CudaContext> ctx,
                             std::unique_ptr<DeviceReduction> reduction, std::uint64_t free_bytes)
    : host_(parts.ctx),
      lora_(parts.lora),
      n_layers_(parts.config.n_layers),
      ctx_(std::move(ctx)),
      weights_(*ctx_, parts.weights),
      model_(*ctx_, parts.config, weights_.views(), parts.lora, parts.limits, parts.dropout),
      reduction_(std::move(reduction)) {
  const std::int64_t n = lora_.size();
  const std::size_t n_tensors = lora_.tensors().size();
  const auto take = [&](auto& memory) {
    for (Array& a : arrays_) a.device = memory.template take<float>(n);
    if constexpr (!kFloat) adapter_ = memory.template take<Real>(n);
    pieces_ = memory.template take<TensorPiece>(static_cast<std::int64_t>(n_tensors));
    report_and_nll_ = memory.template take<float>(kReportFloats + most_scored(parts.limits));
    const std::size_t mark = memory.mark();
    before_ = memory.template take<float>(n);
    memory.release(mark);
    sum_ = {memory.template take<std::int64_t>(ExactSumView::n_limbs(n + 1)).data(), n + 1};
    report_ = reinterpret_cast<ExactSumReport*>(report_and_nll_.data());
    nll_ = report_and_nll_.empty() ? report_and_nll_ : report_and_nll_.subspan(kReportFloats);
  };
  ArenaPlan plan;
  take(plan);
  const std::size_t scratch =
      std::max({attention_scratch_bytes(parts.limits.train_tokens, parts.config.heads),
                tensor_sums_scratch_bytes(static_cast<std::int64_t>(n_tensors)), std::size_t{256}});
  const auto weight_bytes = static_cast<std::int64_t>(DeviceWeights<Real>::bytes(parts.weights));
  const auto state_bytes = static_cast<std::int64_t>(plan.bytes() + scratch);
  const auto needed = [&](std::int64_t n_recomputed) {
    return weight_bytes + state_bytes + static_cast<std::int64_t>(model_.planned_bytes(n_recomputed));
  };
  const auto room = static_cast<std::int64_t>(free_bytes) - kUnplanned;
  std::int64_t n_recomputed = 0;
  while (n_recomputed < n_layers_ && needed(n_recomputed) > room) ++n_recomputed;
  if (needed(n_recomputed) > room)
    throw Error(ErrorKind::kDevice, cat("the GPU's memory is too small: ", gib(needed(n_recomputed)),
                                        " with every layer computed again, ", gib(room),
                                        " free for it; a smaller batch.micro or data.max_tokens would help"));
  device_bytes_ = needed(n_recomputed);
  lines_.push_back(cat(
      "GPU memory: ", gib(device_bytes_), " of ", gib(static_cast<std::int64_t>(free_bytes)),
      " free: weights ", gib(weight_bytes), ", activations ", gib(device_bytes_ - weight_bytes - state_bytes),
      ", adapter and moments ", gib(state_bytes),
      n_recomputed > 0 ? cat("; ", n_recomputed, " of ", n_layers_, " layers are computed again in backward")
                       : ""));
  lines_.push_back(cat("gradients are added by ", reduction_->name()));

  arena_ = DeviceArena(*ctx_, plan.bytes(), "adapter, moments and gradient");
  take(arena_);
  ctx_->reserve(scratch);
  model_.allocate(n_recomputed);
  host_arena_ = Arena(4 * ArenaPlan::padded(static_cast<std::size_t>(n) * sizeof(float)),
                      "adapter, moments and gradient");
  for (Array& a : arrays_) {
    a.host = host_arena_.take<float>(n);
    zero_bytes(*ctx_, a.device.data(), a.device.size_bytes());
    a.on_host = true;
  }
  host_nll_.resize(report_and_nll_.size());
  std::vector<TensorPiece> pieces;
  std::int64_t first = 0;
  for (const LoraTensor& tensor : lora_.tensors()) {
    pieces.push_back({tensor.offset, tensor.size(), first});
    first += tensor.size();
  }
  copy_to_device(*ctx_, pieces_, std::span<const TensorPiece>(pieces));
}

// ---- state ----

template <class Real>
std::span<const float> CudaEngine<Real>::read(StateArray which) {
  Array& a = array(which);
  if (!a.on_host) copy_to_host(*ctx_, a.host, std::span<const float>(a.device));
  a.on_host = true;
  return a.host;
}

template <class Real>
std::span<float> CudaEngine<Real>::write(StateArray which) {
  (void)read(which);
  array(which).on_device = false;
  if (which == StateArray::kAdapter) adapter_rounded_ = false;
  return array(which).host;
}

template <class Real>
std::span<float> CudaEngine<Real>::device(StateArray which, bool changes) {
  Array& a = array(which);
  if (!a.on_device) copy_to_device(*ctx_, a.device, std::span<const float>(a.host));
  a.on_device = true;
  if (changes) {
    a.on_host = false;
    if (which == StateArray::kAdapter) adapter_rounded_ = false;
  }
  return a.device;
}

template <class Real>
std::span<const Real> CudaEngine<Real>::adapter() {
  if constexpr (kFloat) {
    return device(StateArray::kAdapter);
  } else {
    if (!adapter_rounded_ || !array(StateArray::kAdapter).on_device)
      to_bf16(*ctx_, adapter_, device(StateArray::kAdapter));
    adapter_rounded_ = true;
    return adapter_;
  }
}

// ---- the gradient of an update ----

template <class Real>
void CudaEngine<Real>::begin_update(std::int64_t n_here, int ranks) {
  if (started_)
    throw Error(ErrorKind::kInternal, "an update's sums were left under way: only reading goes on");
  exact_sum_clear(*ctx_, sum_);
  exact_sum_clear_report(*ctx_, report_);
  nll_limbs_ = {};
  micro_batches_left_ = n_here;
  ranks_ = ranks;
  started_ = false;
}

template <class Real>
void CudaEngine<Real>::start_range(std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  exact_sum_carry(*ctx_, sum_, begin, end, ranks_, report_);
  const auto n = static_cast<std::size_t>(end - begin);
  reduction_->start(*ctx_, {sum_.high() + begin, n});
  reduction_->start(*ctx_, {sum_.low() + begin, n});
}

template <class Real>
std::span<const float> CudaEngine<Real>::gradient(const MicroBatch& batch) {
  const bool last = --micro_batches_left_ == 0;
  const std::span<float> g = device(StateArray::kGradient, true);
  if (last) {
    std::int64_t above = n_layers_;
    model_.gradient(adapter(), batch, nll_, g, [&](std::int64_t l) {
      for (; above > l; --above) {
        const auto [begin, end] = lora_.layer_range(above - 1);
        const auto part = g.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        exact_sum_add(*ctx_, sum_, begin, part, report_);
        start_range(begin, end);
      }
    });
    // Layers without an adapter at and below them.
    for (; above > 0; --above)
      start_range(lora_.layer_range(above - 1).first, lora_.layer_range(above - 1).second);
    started_ = true;
  } else {
    model_.gradient(adapter(), batch, nll_, g);
    exact_sum_add(*ctx_, sum_, 0, g, report_);
  }
  const std::span<const float> nll = nll_on_host(batch);
  ExactSumReport found;
  std::memcpy(&found, host_nll_.data(), sizeof found);
  first_bad_ = found.first_bad == ExactSumReport::kNone ? -1 : found.first_bad;
  return nll;
}

template <class Real>
std::int64_t CudaEngine<Real>::add_gradient() {
  return first_bad_;
}

template <class Real>
bool CudaEngine<Real>::add_nll(double nll) {
  return exact_sum_add({nll_limbs_.data(), 1}, 0, nll);
}

template <class Real>
void CudaEngine<Real>::end_gradients() {
  if (!started_)
    for (std::int64_t l = n_layers_ - 1; l >= 0; --l)
      start_range(lora_.layer_range(l).first, lora_.layer_range(l).second);
  const std::int64_t at = lora_.size();
  copy_bytes_to_device(*ctx_, sum_.high() + at, &nll_limbs_[0], sizeof(std::int64_t));
  copy_bytes_to_device(*ctx_, sum_.low() + at, &nll_limbs_[1], sizeof(std::int64_t));
  start_range(at, at + 1);
  started_ = true;
}

template <class Real>
ExactSumReport CudaEngine<Real>::report() const {
  ExactSumReport report;
  copy_bytes_to_host(*ctx_, &report, report_, sizeof report);
  return report;
}

template <class Real>
ExactSumCarry CudaEngine<Real>::carry(int ranks) {
  if (!started_) {
    exact_sum_clear_report(*ctx_, report_);
    exact_sum_carry(*ctx_, sum_, 0, sum_.size, ranks, report_);
    // Between micro-batches the nll's element is still on the host.
    if (exact_sum_carry({nll_limbs_.data(), 1}, ranks, 1).too_large >= 0) return {lora_.size(), 0, 0};
  }
  const ExactSumReport found = report();
  if (!started_) exact_sum_clear_report(*ctx_, report_);
  return {found.too_large == ExactSumReport::kNone ? -1 : found.too_large, found.checksum_before,
          found.checksum_after};
}

template <class Real>
void CudaEngine<Real>::all_reduce(std::string_view where) {
  reduction_->finish(*ctx_, where);
  nll_limbs_ = {};
  started_ = false;
}

template <class Real>
void CudaEngine<Real>::form_mean(double count) {
  exact_sum_mean(*ctx_, sum_, 0, count, device(StateArray::kGradient, true));
}

template <class Real>
double CudaEngine<Real>::nll_sum() {
  const std::int64_t at = lora_.size();
  std::array<std::int64_t, ExactSumView::n_limbs(1)> limbs{};
  copy_bytes_to_host(*ctx_, &limbs[0], sum_.high() + at, sizeof(std::int64_t));
  copy_bytes_to_host(*ctx_, &limbs[1], sum_.low() + at, sizeof(std::int64_t));
  return exact_sum_value({limbs.data(), 1}, 0);
}

template <class Real>
void CudaEngine<Real>::zero_gradient() {
  const std::span<float> g = device(StateArray::kGradient, true);
  zero_bytes(*ctx_, g.data(), g.size_bytes());
}

template <class Real>
void CudaEngine<Real>::gradient_squares(std::span<double> squares) {
  tensor_squares(*ctx_, squares, device(StateArray::kGradient), pieces_);
}

// ---- the step ----

template <class Real>
void CudaEngine<Real>::keep_adapter() {
  const std::span<float> p = device(StateArray::kAdapter);
  copy_bytes_on_device(*ctx_, before_.data(), p.data(), p.size_bytes());
}

template <class Real>
void CudaEngine<Real>::step(const AdamwFactors& factors) {
  adamw(*ctx_, device(StateArray::kAdapter, true), device(StateArray::kM, true), device(StateArray::kV, true),
        device(StateArray::kGradient), factors);
}

template <class Real>
void CudaEngine<Real>::change_norms(std::span<double> norms) {
  tensor_difference_squares(*ctx_, norms, device(StateArray::kAdapter), before_, pieces_);
  for (double& norm : norms) norm = std::sqrt(norm);
}

template <class Real>
void CudaEngine<Real>::ba_norms(std::span<double> norms) {
  tandem::ba_norms(host_, norms, lora_, read(StateArray::kAdapter));
}

template <class Real>
std::uint64_t CudaEngine<Real>::checksum_of_adapter() {
  return adapter_checksum(*ctx_, device(StateArray::kAdapter), pieces_);
}

// ---- evaluation ----

template <class Real>
std::span<const float> CudaEngine<Real>::nll_on_host(const MicroBatch& batch) {
  const auto n = kReportFloats + static_cast<std::size_t>(batch.n_scored());
  copy_to_host(*ctx_, std::span(host_nll_).first(n), std::span<const float>(report_and_nll_.first(n)));
  return std::span<const float>(host_nll_).first(n).subspan(kReportFloats);
}

template <class Real>
std::span<const float> CudaEngine<Real>::evaluate(const MicroBatch& batch, bool with_adapter,
                                                  PassObserver* observer) {
  const std::span<const Real> a = with_adapter ? adapter() : std::span<const Real>();
  if (observer) {
    HostObserver shown(*ctx_, *observer);
    model_.evaluate(a, batch, nll_, &shown);
  } else {
    model_.evaluate(a, batch, nll_);
  }
  return nll_on_host(batch);
}

template class CudaEngine<float>;
template class CudaEngine<Bf16>;

}  // namespace tandem
