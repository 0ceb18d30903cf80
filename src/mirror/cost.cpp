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

Cost Cost::of_one_layer(std::int64_t n_layers) const {
  Cost one = *this;
  for (double* part : {&one.projections, &one.adapters, &one.attention})
    *part /= static_cast<double>(n_layers);
  return one;
}

double operations_per_second(double operations, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto first = Clock::now();
  work();
  const double once = seconds_since(first);
  if (once > 0.2) return operations / once;
  const auto start = Clock::now();
  double times = 0;
  do {
    work();
    ++times;
  } while (seconds_since(start) < 0.2);
  return times * operations / seconds_since(start);
}

}  // namespace tandem::mirror
