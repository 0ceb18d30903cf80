// How far rounding alone carries two stacks apart that start from the same state, from the sizes of the model
// and the precisions of the stacks (README.md, "How far rounding carries", has the derivation and its
// sources). It needs no replicates, and says for how many updates it can speak.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

struct ModelSizes {
  std::int64_t layers = 0, hidden = 0, intermediate = 0, heads = 0, head_dim = 0;
  std::int64_t longest = 0;    // tokens of the longest sample
  double logit_scale = 0.0;    // |h| |w| of a head's row
  std::int64_t n_adapter = 0;  // elements of the adapter
};

// Unit roundoffs of a precision key: of sums, of products' inputs, of stored results.
struct Roundoff {
  double sums = 0.0, inputs = 0.0, results = 0.0;
};
std::optional<Roundoff> roundoff_of(const std::string& precision);

class RoundingModel {
 public:
  static constexpr double kLambda = 6.0;  // standard deviations
  static constexpr double kRho =
      2.0;  // relative change of the gradient in one update, at the edge of stability
  static constexpr double kSmall = 0.1;  // of an update: beyond it nothing is known

  RoundingModel(const ModelSizes& sizes, const Roundoff& a, const Roundoff& b);

  // From the same state. Relative, of rms and absmax after layer l = 0 ...
  double activation(std::int64_t layer) const;
  double logit() const;                             // absolute
  double token_nll() const { return 2 * logit(); }  // absolute
  double mean_loss(std::int64_t n_samples) const;   // absolute, a mean over that many samples
  double gradient() const;                          // relative, of the whole and of tensors

  // Prepares the following for updates 1 ... lr.size(): each one's learning rate and gradient norm.
  void follow(std::span<const double> lr, std::span<const double> grad_norm);
  // The last update that can be judged; after it differences may have grown to kSmall of an update. Of
  // evaluations, those after an update before it.
  std::int64_t horizon() const { return horizon_; }
  // For updates t = 1 ... horizon(): adapters differ before it by at most this much, as the root mean square
  // over elements.
  double state(std::int64_t t) const { return state_[static_cast<std::size_t>(t - 1)]; }
  double gradient(std::int64_t t) const;                                // relative
  double loss(std::int64_t t, std::int64_t n_samples) const;            // absolute
  double evaluation(std::int64_t after, std::int64_t n_samples) const;  // absolute
  double update(std::int64_t t) const;                                  // relative, of p(t) - p(t-1)

 private:
  double drift(std::int64_t t) const;

  ModelSizes sizes_;
  std::vector<double> layer_variance_;  // of the residual stream after each layer
  double forward_ = 0.0;                // standard deviation, relative, with the head
  std::vector<double> lr_, norm_, state_, step_;
  std::int64_t horizon_ = 0;
};

}  // namespace tandem
