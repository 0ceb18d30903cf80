// What evaluations show beside their loss, on the first scored tokens of the held-out set (io/FORMAT.md, "The
// probe"): each token's nll and largest logits, and how large the residual stream is after each layer. It
// looks at the passes that evaluate anyway, so it costs no pass of its own and changes none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/observations.hpp"
#include "io/samples.hpp"
#include "kernels/context.hpp"
#include "src/model/micro_batch.hpp"
#include "src/model/pass_observer.hpp"

namespace tandem {

// The first `most` scored tokens, or all if they are fewer.
ProbeTokens probe_tokens(const SampleSet& held_out, std::int64_t most);

class Probe final : public PassObserver {
 public:
  // micro: samples of a micro-batch. ctx must outlive this object.
  Probe(const CpuContext& ctx, const SampleSet& held_out, std::int64_t most_tokens, std::int64_t micro,
        std::int64_t n_layers, std::int64_t hidden);

  const ProbeTokens& tokens() const { return tokens_; }
  // Forgets the evaluation before.
  void clear();
  // Before the pass of the evaluation's micro-batch j: the observer that the pass is to have; nullptr where
  // the micro-batch has no token of the probe. After the pass: its scored tokens' nll.
  PassObserver* watch(std::int64_t j, const MicroBatch& batch);
  void take_nll(std::span<const float> nll);
  // Collective: gathers what the ranks have seen, each micro-batch on one of them; row() is then that of the
  // whole evaluation, the same on all ranks, and valid until clear(). Throws AgreedError where the ranks'
  // contributions do not add up.
  void gather(Communicator& comm);
  ProbeRow row() const;

  void after_layer(std::int64_t l, ConstMatrix x) override;
  void logits_of(std::int64_t begin, ConstMatrix logits) override;
  std::int64_t wanted_logits(std::int64_t begin, std::int64_t n) const override;

 private:
  // Of a micro-batch: its tokens of the probe are [first, first + count), its samples' positions looked at
  // are [0, looked_at[s]).
  struct Part {
    std::int64_t first = 0, count = 0;
    std::vector<std::int64_t> looked_at;
  };
  const Part& part() const { return parts_[static_cast<std::size_t>(watched_)]; }
  std::int64_t& slot(std::int64_t i) { return bits_[static_cast<std::size_t>(i)]; }

  const CpuContext& ctx_;
  ProbeTokens tokens_;
  std::int64_t n_layers_;
  double n_values_ = 0.0;  // channels times positions looked at
  std::vector<Part> parts_;
  std::int64_t watched_ = -1;
  const MicroBatch* batch_ = nullptr;

  // Every number as the 64 bits that it is made of, 0 where another rank has it: a sum of integers then
  // gathers them exactly. Sums of squares and largest magnitudes stand here by micro-batch and layer, so that
  // they are put together in one order on any number of ranks. Parts of the array by where they begin:
  std::vector<std::int64_t> bits_;
  std::int64_t nll_ = 0, target_logit_ = 0, topk_logit_ = 0, squares_ = 0, absmax_ = 0, topk_id_ = 0;
  std::vector<double> reals_;  // what bits_ stand for, up to the ids
  std::vector<double> rms_, most_;

  std::vector<float> top_values_, row_absmax_;
  std::vector<double> row_squares_;
};

}  // namespace tandem
