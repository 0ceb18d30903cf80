// The engine on a CUDA device. Of the state there is a copy on the host, brought up to date when it is asked
// for.
//
// The gradient's sum is reduced by layers: on the rank's last micro-batch backward tells when a layer's
// gradient is there, and its limbs are on their way to the other ranks while the layers below are still
// computed. Ranks without a last micro-batch give theirs in the same order.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "comm/device_reduction.hpp"
#include "kernels/cuda_context.hpp"
#include "kernels/norms.hpp"
#include "src/train/cuda/device_weights.hpp"
#include "src/train/gpu_build.hpp"

namespace tandem {

template <class Real>
class CudaEngine final : public Engine {
 public:
  // Throws kUsage where the model's heads are not computed on GPUs, kDevice where memory is short: what, how
  // much.
  CudaEngine(const EngineParts& parts, std::unique_ptr<CudaContext> ctx,
             std::unique_ptr<DeviceReduction> reduction, std::uint64_t free_bytes);
  // A sum that other ranks have left is given up first: memory is not freed before the device is idle.
  ~CudaEngine() override { reduction_.reset(); }

  // "GPU memory: 3.1 GiB of 139.8 free: ..."
  const std::vector<std::string>& lines() const { return lines_; }

  std::span<const float> read(StateArray array) override;
  std::span<float> write(StateArray array) override;

  void begin_update(std::int64_t n_here, int ranks) override;
  std::span<const float> gradient(const MicroBatch& batch) override;
  std::int64_t add_gradient() override;
  bool add_nll(double nll) override;
  void end_gradients() override;
  void form_mean(double count) override;
  double nll_sum() override;
  void zero_gradient() override;
  void gradient_squares(std::span<double> squares) override;

  void keep_adapter() override;
  void step(const AdamwFactors& factors) override;
  void change_norms(std::span<double> norms) override;
  void ba_norms(std::span<double> norms) override;
  std::uint64_t checksum_of_adapter() override;
  std::string base_digest(std::size_t i) override { return weights_.digest(i); }
  std::int64_t device_bytes() override { return device_bytes_; }

  std::span<const float> evaluate(const MicroBatch& batch, bool with_adapter,
                                  PassObserver* observer) override;

  std::int64_t elements() const override { return sum_.size; }
  ExactSumCarry carry(int ranks) override;
  void all_reduce(std::string_view where) override;

 private:
  static constexpr bool kFloat = std::is_same_v<Real, float>;

  struct Array {
    std::span<float> device, host;
    bool on_host = false;   // the host's copy is that of the device
    bool on_device = true;  // the device has what the host wrote
  };
  Array& array(StateArray which) { return arrays_[static_cast<std::size_t>(which)]; }
  // For an operation: the device's, with what the host wrote; `changes`: the host's copy is old afterwards.
  std::span<float> device(StateArray which, bool changes = false);
  // The adapter as products take it.
  std::span<const Real> adapter();
  // Adds a range of the last micro-batch's gradient and sends it on its way.
  void start_range(std::int64_t begin, std::int64_t end);
  ExactSumReport report() const;
  std::span<const float> nll_on_host(const MicroBatch& batch);

  const CpuContext& host_;
  const LoraLayout& lora_;
  std::int64_t n_layers_;
  std::unique_ptr<CudaContext> ctx_;
  DeviceWeights<Real> weights_;
  TransformerOn<CudaContext, Real> model_;
  DeviceArena arena_;
  Arena host_arena_;
  std::array<Array, 4> arrays_;
  std::span<Real> adapter_;  // rounded; empty where formats are equal
  bool adapter_rounded_ = false;
  // The report and the nll of a micro-batch, so that one copy brings both.
  static constexpr std::size_t kReportFloats = sizeof(ExactSumReport) / sizeof(float);
  std::span<float> report_and_nll_, nll_, before_;
  std::span<TensorPiece> pieces_;
  ExactSumView sum_;  // the gradient's elements, then the nll sum
  ExactSumReport* report_ = nullptr;
  std::int64_t device_bytes_ = 0;
  std::vector<std::string> lines_;

  std::vector<float> host_nll_;  // as report_and_nll_
  std::array<std::int64_t, ExactSumView::n_limbs(1)> nll_limbs_{};
  std::int64_t micro_batches_left_ = 0, first_bad_ = -1;
  int ranks_ = 1;
  bool started_ = false;  // the sum is on its way: report_ has what carry() is to say
  // Last, so that it ends first: after an error it lets go the sums that other ranks never join, for which
  // freeing the device's memory would wait.
  std::unique_ptr<DeviceReduction> reduction_;
};

}  // namespace tandem
