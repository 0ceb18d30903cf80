// UTF-8, as Unicode's table 3-7 allows it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Offset of the first byte that begins no well-formed sequence; none in valid text.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// Each part that is not well-formed becomes one U+FFFD (the longest that could have begun a sequence, as
// Unicode recommends and WHATWG's decoders do).
std::string replace_invalid_utf8(std::string_view text);

// Length in bytes of the sequence that begins with `lead`; text must be valid.
constexpr std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at `at`; text must be valid.
inline char32_t utf8_decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  switch (utf8_length(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

}  // namespace tandem
