#include "io/text/byte_level.hpp"

#include <array>
#include <cstdint>

#include "io/text/utf8.hpp"

namespace tandem {
namespace {

constexpr std::uint16_t kAlphabetEnd = 0x144;  // 0x100 + the 68 bytes that do not stand for themselves

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint16_t, 256> letter{};
  std::array<std::int16_t, kAlphabetEnd> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& entry : alphabet.byte) entry = -1;
  std::uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const std::uint16_t letter = stands_for_itself(byte) ? static_cast<std::uint16_t>(byte) : next++;
    alphabet.letter[static_cast<std::size_t>(byte)] = letter;
    alphabet.byte[letter] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.letter[' '] == 0x120 && kAlphabet.letter[0xAD] == 0x143);

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const std::uint16_t letter = kAlphabet.letter[static_cast<unsigned char>(c)];
    if (letter < 0x80) {
      out += static_cast<char>(letter);
    } else {
      out += static_cast<char>(0xC0 | letter >> 6);
      out += static_cast<char>(0x80 | (letter & 0x3F));
    }
  }
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view spelled) {
  std::string out;
  for (std::size_t at = 0; at < spelled.size(); at += utf8_length(spelled[at])) {
    const char32_t letter = utf8_decode(spelled, at);
    if (letter >= kAlphabetEnd || kAlphabet.byte[letter] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[letter]);
  }
  return out;
}

}  // namespace tandem
