// Counter-based random numbers (SPEC.md, "Random numbers"): every draw is a function of (seed, name,
// counter), so it does not depend on ranks, threads or what was drawn before.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/host_device.hpp"

namespace tandem {

TANDEM_HOST_DEVICE constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr std::uint64_t fnv1a64(std::string_view utf8) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : utf8) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// The stream of one (seed, name); draw(i) is a uniform 64-bit integer.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::string_view name)
      : key_(splitmix64(seed ^ fnv1a64(name))) {}
  TANDEM_HOST_DEVICE constexpr std::uint64_t draw(std::uint64_t i) const { return splitmix64(key_ + i); }
  // In [0, 1), a multiple of 2^-53.
  constexpr double unit(std::uint64_t i) const { return static_cast<double>(draw(i) >> 11) * 0x1p-53; }

 private:
  std::uint64_t key_;
};

static_assert(splitmix64(0) == 0xE220A8397B1DCDAFull);
static_assert(fnv1a64("a") == 0xAF63DC4C8601EC8Cull);

}  // namespace tandem
