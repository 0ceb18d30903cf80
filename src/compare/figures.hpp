// The study's figures of a pair: what people look at, none of it a verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/compare/pair.hpp"
#include "src/compare/statistics.hpp"

namespace tandem {

// Held-out loss of A against B, 100 (a - b) / b, at each evaluation after an update.
struct HeldOutFigures {
  std::vector<std::int64_t> step;
  std::vector<double> percent;  // signed
  double mean_size = 0.0;       // of |percent|
  double largest = 0.0;         // of |percent|
  std::int64_t largest_at = 0;  // after which update
  double deviation = 0.0;       // standard deviation of percent
  double last = 0.0;            // percent at the end
  double autocorrelation = 0.0;
  SignChanges signs;
  MeanInterval interval;  // of the signed mean, 95 %
};

// |a - b| / b of the gradient norm over updates.
struct GradientFigures {
  double median = 0.0, q90 = 0.0, q99 = 0.0, largest = 0.0;
  std::int64_t largest_at = 0;
  std::vector<std::int64_t> sample_ids;  // of that update
};

// Trend over audits of the median over tensors of d / threshold.
struct AuditTrend {
  std::string who;
  std::int64_t audits = 0;
  double first = 0.0, last = 0.0;
  Trend trend;
};

struct Figures {
  std::optional<HeldOutFigures> held_out;
  std::optional<GradientFigures> gradient;
  std::vector<AuditTrend> audits;
  // Of updates, in seconds; or why the two say nothing about one another.
  double seconds_a = 0.0, seconds_b = 0.0;
  std::string timings;  // "": they can be compared
};

Figures figures_of(const Pair& pair);

}  // namespace tandem
