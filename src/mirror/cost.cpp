#include "src/mirror/cost.hpp"

#include <chrono>

namespace tandem::mirror {

Cost::Cost(const Config& config, const Weights& weights, const Lora& lora) {
  for (const LayerWeights& layer : weights.layers())
    for (const Projection* p : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      projections += static_cast<double>(p->weight.rows() * p->weight.cols());
  for (const AdapterTensor& tensor : lora.tensors())
    adapters += static_cast<double>(tensor.rows * tensor.columns);
  attention = 2.0 * static_cast<double>(config.layers * config.heads * config.head_dim);
  head = static_cast<double>(config.vocab_size * config.hidden_size);
}

double Cost::forward(std::int64_t n_ids, std::int64_t n_scored) const {
  const auto t = static_cast<double>(n_ids), n = static_cast<double>(n_scored);
  return 2 * (t * (projections + adapters) + t * t * attention + n * head);
}

double Cost::gradient(std::int64_t n_ids, std::int64_t n_scored) const {
  if (n_scored == 0) return 0;
  const auto t = static_cast<double>(n_ids), n = static_cast<double>(n_scored);
  // Twice forward; backward one product for each of a frozen weight's, two for each of two variables.
  return 2 * (t * (3 * projections + 4 * adapters) + 4 * t * t * attention + 3 * n * head);
}

double measured_flops_per_second(std::int64_t channels_in, std::int64_t channels_out) {
  constexpr Index kTokens = 256;
  const Matrix x = Matrix::Random(kTokens, channels_in), w = Matrix::Random(channels_out, channels_in);
  Matrix y = x * w.transpose();
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double operations = 0, seconds = 0;
  while (seconds < 0.2) {
    y.noalias() = x * w.transpose();
    operations += 2.0 * kTokens * static_cast<double>(channels_in * channels_out);
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return operations / seconds;
}

}  // namespace tandem::mirror
