// SPEC.md "Random numbers": a number is a function of seed, name and index, so no generator has a state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::mirror {

std::uint64_t splitmix64(std::uint64_t x);
std::uint64_t fnv1a64(std::string_view bytes);

// splitmix64(splitmix64(seed ^ fnv1a64(name)) + i)
std::uint64_t draw(std::uint64_t seed, std::string_view name, std::uint64_t i);

// (u >> 11) * 2^-53: uniform in [0, 1)
double unit(std::uint64_t u);

// `draw` for many indices of one seed and name.
class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view name) : key_(splitmix64(seed ^ fnv1a64(name))) {}
  std::uint64_t operator()(std::uint64_t i) const { return splitmix64(key_ + i); }

 private:
  std::uint64_t key_;
};

// LoRA's A [rows, columns], row-major: (2*unit - 1) * sqrt(1/columns) in double, then rounded to float32.
std::vector<double> initial_a(std::uint64_t seed, std::string_view module, std::int64_t rows,
                              std::int64_t columns);

// The samples 0..n-1 as epoch e (from 0) takes them: sorted by (draw(seed, "order", e << 32 | i), i).
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t n);

}  // namespace tandem::mirror
