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

struct Sequence {
  std::size_t length;  // whole: of the sequence; else of the part that could have begun one, at least 1
  bool whole;
};

// What begins at `at`; the first byte bounds the second.
Sequence sequence(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (!continues(text, at + 1, low, high)) return {1, false};
  std::size_t length = 2;
  while (length < wanted && continues(text, at + length)) ++length;
  return {length, length == wanted};
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
    const Sequence next = sequence(text, at);
    if (!next.whole) return at;
    at += next.length;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  for (std::size_t at = 0; at < text.size();) {
    const Sequence next = sequence(text, at);
    valid += next.whole ? text.substr(at, next.length) : std::string_view("\xEF\xBF\xBD");
    at += next.length;
  }
  return valid;
}

}  // namespace tandem
