// The engine on a rank's CPU cores.
#pragma once

#include "kernels/context.hpp"
#include "src/base/arena.hpp"
#include "src/model/transformer.hpp"
#include "src/train/engine.hpp"

namespace tandem {

class CpuEngine final : public Engine {
 public:
  // The references must outlive this object. Of the first n_recomputed layers little is kept between forward
  // and backward; the results have the same bits.
  CpuEngine(const CpuContext& ctx, Communicator& comm, const ModelConfig& config, const Weights& weights,
            const LoraLayout& lora, const BatchLimits& limits, const LoraDropout& dropout,
            std::int64_t n_recomputed);

  // Memory of the adapter, its moments, gradient and exact sum.
  static std::size_t state_bytes(const LoraLayout& lora, const BatchLimits& limits);

  std::span<const float> read(StateArray array) override { return write(array); }
  std::span<float> write(StateArray array) override;

  void begin_update(std::int64_t n_here, int ranks) override;
  std::span<const float> gradient(const MicroBatch& batch) override;
  std::int64_t add_gradient() override;
  bool add_nll(double nll) override;
  void form_mean(double count) override;
  double nll_sum() override;
  void zero_gradient() override;
  void gradient_squares(std::span<double> squares) override;

  void keep_adapter() override;
  void step(const AdamwFactors& factors) override;
  void change_norms(std::span<double> norms) override;
  void ba_norms(std::span<double> norms) override;
  std::uint64_t checksum_of_adapter() override;
  std::string base_digest(std::size_t i) override;

  std::span<const float> evaluate(const MicroBatch& batch, bool with_adapter,
                                  PassObserver* observer) override;

  std::int64_t elements() const override { return sum_.size; }
  ExactSumCarry carry(int ranks) override;
  void all_reduce(std::string_view where) override;

 private:
  const CpuContext& ctx_;
  Communicator& comm_;
  const Weights& weights_;
  const LoraLayout& lora_;
  Transformer model_;
  Arena arena_;
  std::span<float> p_, m_, v_, gradient_, nll_;
  ExactSumView sum_;         // the gradient's elements, then the nll sum
  std::span<float> before_;  // the adapter before a step, in the memory of sum_, which is not needed then
};

}  // namespace tandem
