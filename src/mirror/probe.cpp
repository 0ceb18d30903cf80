#include "src/mirror/probe.hpp"

#include <algorithm>
#include <cmath>

#include "src/mirror/parallel.hpp"

namespace tandem::mirror {
namespace {

struct Candidate {
  double logit;
  std::int64_t id;
  bool operator<(const Candidate& other) const {  // better first
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

// What one sample adds.
struct Part {
  Column nll, target_logit;
  std::vector<std::vector<Candidate>> top;  // of each probe token
  Column squares, absmax;  // [L] sum over the positions that predict up to the last token, largest
  double elements = 0;     // positions times channels
};

Part probe_sample(const Transformer& transformer, const Weights& weights, const Sample& sample,
                  const std::vector<std::int64_t>& positions, const Tensors& adapter) {
  Part part;
  part.squares = part.absmax = Column::Zero(static_cast<Index>(weights.layers().size()));
  const auto on_layer = [&](std::int64_t layer, const Matrix& residual) {
    const auto seen = residual.topRows(positions.back());
    part.squares(layer) = seen.squaredNorm();
    part.absmax(layer) = seen.cwiseAbs().maxCoeff();
    part.elements = static_cast<double>(seen.size());
  };
  const Matrix last = transformer.residual(sample.ids, {&adapter, std::nullopt, std::nullopt}, on_layer);
  const Matrix x = transformer.predictors(last, positions);
  std::vector<std::int64_t> targets;
  for (const std::int64_t p : positions) targets.push_back(sample.ids[static_cast<std::size_t>(p)]);
  Tape tape;
  part.nll = head_nll(tape.constant(x), weights.head(), targets).value();
  part.target_logit.resize(part.nll.size());
  part.top.resize(positions.size());
  visit_logits(x, weights.head(), [&](Index first, const Matrix& logits) {
    for (Index t = 0; t < logits.rows(); ++t) {
      const Index target = targets[static_cast<std::size_t>(t)] - first;
      if (target >= 0 && target < logits.cols()) part.target_logit(t) = logits(t, target);
      auto& top = part.top[static_cast<std::size_t>(t)];
      for (Index v = 0; v < logits.cols(); ++v) top.push_back({logits(t, v), first + v});
      const auto kept = std::min<std::size_t>(Probe::kTop, top.size());
      std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(kept), top.end());
      top.resize(kept);
    }
  });
  return part;
}

std::vector<double> ba_norms(const Lora& lora, const Tensors& adapter) {
  std::vector<double> norms;
  for (std::size_t i = 0; i < adapter.size(); i += 2) {
    const auto& a = lora.tensors()[i];
    const auto& b = lora.tensors()[i + 1];
    const Matrix product = Eigen::Map<const Matrix>(adapter[i + 1].data(), b.rows, b.columns) *
                           Eigen::Map<const Matrix>(adapter[i].data(), a.rows, a.columns);
    norms.push_back(lora.scale() * product.norm());
  }
  return norms;
}

}  // namespace

std::vector<ProbeToken> first_scored_tokens(const std::vector<Sample>& held_out, std::int64_t most) {
  std::vector<ProbeToken> tokens;
  for (std::size_t i = 0; i < held_out.size(); ++i)
    for (const std::int64_t position : held_out[i].scored) {
      if (static_cast<std::int64_t>(tokens.size()) == most) return tokens;
      tokens.push_back(
          {static_cast<std::int64_t>(i), position, held_out[i].ids[static_cast<std::size_t>(position)]});
    }
  return tokens;
}

Probe run_probe(const Transformer& transformer, const Weights& weights, const Lora& lora,
                const std::vector<Sample>& held_out, const std::vector<ProbeToken>& tokens,
                const Tensors& adapter, int threads) {
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>>
      samples;  // and the probe's positions in each
  for (const ProbeToken& token : tokens) {
    const auto sample = static_cast<std::size_t>(token.sample);
    if (samples.empty() || samples.back().first != sample) samples.push_back({sample, {}});
    samples.back().second.push_back(token.position);
  }
  const auto compute = [&](std::size_t i) {
    return probe_sample(transformer, weights, held_out[samples[i].first], samples[i].second, adapter);
  };
  Probe probe;
  Column squares = Column::Zero(static_cast<Index>(weights.layers().size())), absmax = squares;
  double elements = 0;
  in_order(threads, samples.size(), compute, [&](std::size_t, const Part& part) {
    probe.nll.insert(probe.nll.end(), part.nll.begin(), part.nll.end());
    probe.target_logit.insert(probe.target_logit.end(), part.target_logit.begin(), part.target_logit.end());
    for (const auto& top : part.top)
      for (std::size_t k = 0; k < Probe::kTop; ++k) {
        const bool there = k < top.size();
        probe.top_id.push_back(there ? top[k].id : -1);
        probe.top_logit.push_back(there ? top[k].logit : std::nan(""));
      }
    squares += part.squares;
    absmax = absmax.cwiseMax(part.absmax);
    elements += part.elements;
  });
  if (!samples.empty()) {
    const Column rms = (squares / elements).cwiseSqrt();
    probe.activation_rms.assign(rms.begin(), rms.end());
    probe.activation_absmax.assign(absmax.begin(), absmax.end());
  }
  probe.ba_norm = ba_norms(lora, adapter);
  return probe;
}

}  // namespace tandem::mirror
