#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/model/config.hpp"

namespace tandem {

std::vector<double> rope_frequencies(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.heads.head_dim);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < config.heads.head_dim / 2; ++i) {
    double frequency = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / dim);
    if (config.llama3_rope) {
      const ModelConfig::Llama3Rope& s = *config.llama3_rope;
      const double turns =
          s.original_positions * frequency / (2.0 * std::numbers::pi);  // over the original context
      const double keep =
          std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
      frequency = keep * frequency + (1.0 - keep) * frequency / s.factor;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace tandem
