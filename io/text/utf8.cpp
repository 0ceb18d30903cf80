#include "io/text/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

bool continues(std::string_view text, std::size_t at, unsigned char low = 0x80, unsigned char high = 0xBF) {
  if (at >= text.size()) return false;
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte >= low && byte <= high;
}

// Length of the well-formed sequence at `at`, 0 if there is none; the first byte bounds the second.
std::size_t sequence(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(text, at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned char low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : 0xBF;
    return continues(text, at + 1, low, high) && continues(text, at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned char low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(text, at + 1, low, high) && continues(text, at + 2) && continues(text, at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    while (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if (eight & 0x8080808080808080ull) break;
      at += 8;
    }
    if (at == text.size()) break;
    const std::size_t length = sequence(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace tandem
