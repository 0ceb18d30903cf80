// What tokenizers ask of Unicode: code points, three classes of them, and normal form C.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::mirror {

struct CodePoint {
  char32_t value;
  std::size_t begin;  // first byte in the text
};

// Of valid UTF-8, with one more at the end: value 0, begin = the text's size.
std::vector<CodePoint> code_points(std::string_view utf8);
std::string to_utf8(char32_t value);

bool is_letter(char32_t c);  // \p{L}
bool is_number(char32_t c);  // \p{N}: Nd, Nl, No
bool is_space(char32_t c);   // White_Space

// NFC as the published tokenizers library has it (SPEC.md, "Rendering"): a code point that its older tables
// do not know is a starter that neither decomposes nor composes.
std::string nfc(std::string_view utf8);

}  // namespace tandem::mirror
