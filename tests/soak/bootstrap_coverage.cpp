// How often the 95 % interval of a mean covers it, for series of one length and autocorrelation: the table of
// src/compare/README.md (2,000 series each, which takes half a minute). From the project's root:
//   g++ -std=c++20 -O2 -I. tests/soak/bootstrap_coverage.cpp src/compare/statistics.cpp -o coverage &&
//   ./coverage
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "src/compare/statistics.hpp"

int main(int argc, char** argv) {
  const int series = argc > 1 ? std::atoi(argv[1]) : 2000;
  std::mt19937_64 bits(7);
  std::normal_distribution<double> normal;
  std::printf("| n | autocorrelation | coverage | mean block |\n|---|---|---|---|\n");
  for (const int n : {42, 200})
    for (const double r : {0.0, 0.3, 0.5, 0.7, 0.9}) {
      int inside = 0;
      double blocks = 0.0;
      for (int k = 0; k < series; ++k) {
        std::vector<double> x;
        double value = normal(bits);
        for (int t = 0; t < n; ++t) {
          x.push_back(value);
          value = r * value + std::sqrt(1 - r * r) * normal(bits);
        }
        const tandem::MeanInterval interval = tandem::mean_interval(x, 0.95);
        inside += interval.low <= 0.0 && 0.0 <= interval.high;
        blocks += static_cast<double>(interval.block);
      }
      std::printf("| %d | %.1f | %.3f | %.1f |\n", n, r, static_cast<double>(inside) / series,
                  blocks / series);
    }
}
