#include "src/mirror/random.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::mirror {

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::uint64_t fnv1a64(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return hash;
}

std::uint64_t draw(std::uint64_t seed, std::string_view name, std::uint64_t i) {
  return Draws(seed, name)(i);
}

double unit(std::uint64_t u) { return static_cast<double>(u >> 11) * 0x1p-53; }

std::vector<double> initial_a(std::uint64_t seed, std::string_view module, std::int64_t rows,
                              std::int64_t columns) {
  const Draws draws(seed, module);
  const double bound = std::sqrt(1.0 / static_cast<double>(columns));
  std::vector<double> a(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>((2 * unit(draws(i)) - 1) * bound);
  return a;
}

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t n) {
  const Draws draws(seed, "order");
  std::vector<std::pair<std::uint64_t, std::int64_t>> keys;
  for (std::int64_t i = 0; i < n; ++i)
    keys.emplace_back(draws(epoch << 32 | static_cast<std::uint64_t>(i)), i);
  std::sort(keys.begin(), keys.end());
  std::vector<std::int64_t> order;
  for (const auto& [key, i] : keys) order.push_back(i);
  return order;
}

}  // namespace tandem::mirror
