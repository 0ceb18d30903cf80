// Random text for tests: all planes, white space, marks, Hangul, fragments of control tokens.
#pragma once

#include <array>
#include <random>
#include <string>

namespace tandem::test {

inline void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

inline std::string random_text(std::mt19937_64& random) {
  constexpr std::array<std::array<char32_t, 2>, 12> kRanges = {{{0x00, 0x7F},
                                                                {0x20, 0x7E},
                                                                {0x30, 0x39},
                                                                {0xA0, 0x24F},
                                                                {0x300, 0x36F},
                                                                {0x370, 0x5FF},
                                                                {0x900, 0xDFF},
                                                                {0xF40, 0x109F},
                                                                {0x1100, 0x11FF},
                                                                {0x1E00, 0x206F},
                                                                {0x3000, 0xD7A3},
                                                                {0xF900, 0x10FFFF}}};
  constexpr std::array<const char*, 14> kFragments = {
      "<|im_end|>", "<|im_start|>", "<|im_", "end|>", "<think>", "</think>", "\n\n",
      " \n",        "   ",          "\r\n",  "'s",    "'LL",     "a",        "12"};
  std::string text;
  for (std::size_t n = random() % 24; n > 0; --n) {
    if (random() % 4 == 0) {
      text += kFragments[random() % kFragments.size()];
      continue;
    }
    const auto [low, high] = kRanges[random() % kRanges.size()];
    append_utf8(text, low + static_cast<char32_t>(random() % (high - low + 1)));
  }
  return text;
}

}  // namespace tandem::test
