// What one rank's device does of an update: passes over micro-batches, the exact sum of their gradients,
// AdamW. The trainer says in which order, and where ranks agree. One engine a kind of device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/exact_reduction.hpp"
#include "kernels/adamw.hpp"
#include "kernels/exact_sum.hpp"
#include "src/model/lora.hpp"
#include "src/model/micro_batch.hpp"
#include "src/model/pass_observer.hpp"

namespace tandem {

// Flat arrays of the adapter's layout.
enum class StateArray { kAdapter, kM, kV, kGradient };

class Engine : public ReducibleSum {
 public:
  // Of the arrays as they are now, valid until the engine changes them; writable: what is written counts for
  // all that follows.
  virtual std::span<const float> read(StateArray array) = 0;
  virtual std::span<float> write(StateArray array) = 0;

  // ---- the gradient of an update ----
  // Where an update is left by an error between begin_update() and all_reduce(), only read() works
  // afterwards. Forgets the sum. n_here: how many micro-batches follow on this rank; ranks: over how many it
  // will be added.
  virtual void begin_update(std::int64_t n_here, int ranks) = 0;
  // Forward and backward of the next micro-batch: its gradient is read(kGradient), the nll of its scored
  // tokens, in order, the result, valid until the next pass. batch has scored tokens.
  virtual std::span<const float> gradient(const MicroBatch& batch) = 0;
  // Adds the gradient to the sum: -1, or the smallest element that could not be added.
  [[nodiscard]] virtual std::int64_t add_gradient() = 0;
  // Adds to the element after the gradient's; false where |nll| < 2^32 does not hold.
  [[nodiscard]] virtual bool add_nll(double nll) = 0;
  // All of this rank's micro-batches are added: the ranks' sums may be added up from here on.
  virtual void end_gradients() {}
  // After the sum over the ranks: gradient = sum / count; the summed nll.
  virtual void form_mean(double count) = 0;
  virtual double nll_sum() = 0;
  virtual void zero_gradient() = 0;
  // Sum of squares of each tensor's gradient, in the order of the layout's tensors.
  virtual void gradient_squares(std::span<double> squares) = 0;

  // ---- the step ----
  // From here to change_norms() the sum's contents are lost.
  virtual void keep_adapter() = 0;
  virtual void step(const AdamwFactors& factors) = 0;
  // 2-norm of each tensor's change since keep_adapter().
  virtual void change_norms(std::span<double> norms) = 0;
  // Frobenius norm of s B A of each module.
  virtual void ba_norms(std::span<double> norms) = 0;
  virtual std::uint64_t checksum_of_adapter() = 0;

  // Weights::memory_digest() of what the engine computes with.
  virtual std::string base_digest(std::size_t i) = 0;
  // Memory of a device that is in use, 0 on the host.
  virtual std::int64_t device_bytes() { return 0; }

  // ---- evaluation ----
  // nll as of gradient(). observer: may be none; it sees matrices on the host.
  virtual std::span<const float> evaluate(const MicroBatch& batch, bool with_adapter,
                                          PassObserver* observer) = 0;
};

}  // namespace tandem
