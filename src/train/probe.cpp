#include "src/train/probe.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/exact_reduction.hpp"
#include "kernels/row_magnitude.hpp"
#include "kernels/top_k.hpp"

namespace tandem {

namespace {

std::int64_t bits_of(double value) { return std::bit_cast<std::int64_t>(value); }

}  // namespace

ProbeTokens probe_tokens(const SampleSet& held_out, std::int64_t most) {
  ProbeTokens tokens;
  for (std::int64_t i = 0; i < held_out.size(); ++i) {
    const auto ids = held_out.ids(i);
    const auto marks = held_out.targets(i);
    for (std::size_t p = 1; p < ids.size(); ++p) {
      if (!marks[p]) continue;
      if (tokens.size() == most) return tokens;
      tokens.sample.push_back(i);
      tokens.position.push_back(static_cast<std::int64_t>(p));
      tokens.target.push_back(ids[p]);
    }
  }
  return tokens;
}

Probe::Probe(const CpuContext& ctx, const SampleSet& held_out, std::int64_t most_tokens, std::int64_t micro,
             std::int64_t n_layers, std::int64_t hidden)
    : ctx_(ctx), tokens_(probe_tokens(held_out, most_tokens)), n_layers_(n_layers) {
  std::int64_t most_here = 0, longest = 0;
  for (std::int64_t k = 0; k < tokens_.size(); ++k) {
    const auto at = static_cast<std::size_t>(k);
    const std::int64_t sample = tokens_.sample[at], j = sample / micro;
    while (static_cast<std::int64_t>(parts_.size()) <= j)
      parts_.push_back({.first = k, .count = 0, .looked_at = {}});
    Part& part = parts_.back();
    most_here = std::max(most_here, ++part.count);
    part.looked_at.resize(static_cast<std::size_t>(sample - j * micro + 1), 0);
    part.looked_at.back() = tokens_.position[at];
  }
  for (const Part& part : parts_)
    for (const std::int64_t n : part.looked_at) {
      longest = std::max(longest, n);
      n_values_ += static_cast<double>(n * hidden);
    }
  const std::int64_t k = tokens_.size(), by_layer = static_cast<std::int64_t>(parts_.size()) * n_layers;
  std::int64_t end = 0;
  const auto take = [&](std::int64_t& begin, std::int64_t count) {
    begin = end;
    end += count;
  };
  take(nll_, k), take(target_logit_, k), take(topk_logit_, k * kTopLogits);
  take(squares_, by_layer), take(absmax_, by_layer), take(topk_id_, k * kTopLogits);
  bits_.resize(static_cast<std::size_t>(end));
  reals_.resize(static_cast<std::size_t>(topk_id_));
  top_values_.resize(static_cast<std::size_t>(most_here * kTopLogits));
  row_squares_.resize(static_cast<std::size_t>(longest));
  row_absmax_.resize(static_cast<std::size_t>(longest));
  rms_.resize(static_cast<std::size_t>(n_layers));
  most_.resize(static_cast<std::size_t>(n_layers));
}

void Probe::clear() { std::fill(bits_.begin(), bits_.end(), 0); }

PassObserver* Probe::watch(std::int64_t j, const MicroBatch& batch) {
  watched_ = j;
  batch_ = &batch;
  return j < static_cast<std::int64_t>(parts_.size()) && part().count > 0 ? this : nullptr;
}

void Probe::take_nll(std::span<const float> nll) {
  for (std::int64_t n = 0; n < part().count; ++n)
    slot(nll_ + part().first + n) = bits_of(static_cast<double>(nll[static_cast<std::size_t>(n)]));
}

void Probe::after_layer(std::int64_t l, ConstMatrix x) {
  double squares = 0.0;
  float most = 0.0f;
  for (std::size_t s = 0; s < part().looked_at.size(); ++s) {
    const std::int64_t begin = batch_->sample_begin[s], count = part().looked_at[s];
    row_magnitude(ctx_, row_squares_, row_absmax_, x.row_range(begin, begin + count));
    for (std::int64_t t = 0; t < count; ++t) {
      squares += row_squares_[static_cast<std::size_t>(t)];
      most = std::max(most, row_absmax_[static_cast<std::size_t>(t)]);
    }
  }
  const std::int64_t at = watched_ * n_layers_ + l;
  slot(squares_ + at) = bits_of(squares);
  slot(absmax_ + at) = bits_of(static_cast<double>(most));
}

std::int64_t Probe::wanted_logits(std::int64_t begin, std::int64_t n) const {
  return std::clamp<std::int64_t>(part().count - begin, 0, n);
}

void Probe::logits_of(std::int64_t begin, ConstMatrix logits) {
  const std::int64_t count = wanted_logits(begin, logits.rows);
  if (count == 0) return;
  const std::int64_t first = part().first + begin;
  const auto ids = std::span(bits_).subspan(static_cast<std::size_t>(topk_id_ + first * kTopLogits),
                                            static_cast<std::size_t>(count * kTopLogits));
  top_k(ctx_, ids, top_values_, logits.row_range(0, count), kTopLogits);
  for (std::int64_t i = 0; i < count * kTopLogits; ++i)
    slot(topk_logit_ + first * kTopLogits + i) =
        bits_of(static_cast<double>(top_values_[static_cast<std::size_t>(i)]));
  for (std::int64_t n = 0; n < count; ++n)
    slot(target_logit_ + first + n) =
        bits_of(static_cast<double>(logits.row(n)[batch_->target[static_cast<std::size_t>(begin + n)]]));
}

void Probe::gather(Communicator& comm) {
  all_reduce_checked(comm, bits_, "the probe");
  for (std::size_t i = 0; i < reals_.size(); ++i) reals_[i] = std::bit_cast<double>(bits_[i]);
  for (std::int64_t l = 0; l < n_layers_; ++l) {
    double squares = 0.0, most = 0.0;
    for (std::int64_t at = l; at < absmax_ - squares_; at += n_layers_) {
      squares += reals_[static_cast<std::size_t>(squares_ + at)];
      most = std::max(most, reals_[static_cast<std::size_t>(absmax_ + at)]);
    }
    rms_[static_cast<std::size_t>(l)] = std::sqrt(squares / n_values_);
    most_[static_cast<std::size_t>(l)] = most;
  }
}

ProbeRow Probe::row() const {
  const auto k = static_cast<std::size_t>(tokens_.size());
  const auto reals = [&](std::int64_t begin, std::size_t count) {
    return std::span(reals_).subspan(static_cast<std::size_t>(begin), count);
  };
  ProbeRow row;
  row.nll = reals(nll_, k);
  row.target_logit = reals(target_logit_, k);
  row.topk_logit = reals(topk_logit_, k * kTopLogits);
  row.topk_id = std::span(bits_).subspan(static_cast<std::size_t>(topk_id_), k * kTopLogits);
  row.rms = rms_;
  row.absmax = most_;
  return row;
}

}  // namespace tandem
