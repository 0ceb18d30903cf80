#include "io/clinical/clean_text.hpp"

#include <algorithm>

#include "io/text/nfc.hpp"
#include "io/text/utf8.hpp"

namespace tandem {
namespace {

enum class Kind { kText, kBlank, kLineEnd, kNothing };

bool between(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

Kind kind_of(char32_t c) {
  if (c == ' ' || c == '\t') return Kind::kBlank;
  if (c >= 0x21 && c < 0x7F) return Kind::kText;
  if (between(c, 0x0A, 0x0D) || c == 0x85 || c == 0x2028 || c == 0x2029) return Kind::kLineEnd;
  if (c < 0x20 || between(c, 0x7F, 0x9F)) return Kind::kNothing;
  // General category Zs.
  if (c == 0xA0 || c == 0x1680 || between(c, 0x2000, 0x200A) || c == 0x202F || c == 0x205F || c == 0x3000)
    return Kind::kBlank;
  if (c == 0xAD || c == 0x61C || c == 0x180E || c == 0x200B || c == 0x200E || c == 0x200F ||
      between(c, 0x202A, 0x202E) || between(c, 0x2060, 0x206F) || c == 0xFEFF)
    return Kind::kNothing;
  return Kind::kText;
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool blank = false;
  int line_ends = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text[at]);
    const Kind kind = kind_of(utf8_decode(text, at));
    if (kind == Kind::kLineEnd) {
      const bool second_half = text[at] == '\n' && at > 0 && text[at - 1] == '\r';
      line_ends += !second_half;
    } else if (kind == Kind::kBlank) {
      blank = true;
    } else if (kind == Kind::kText) {
      if (!out.empty()) {
        if (line_ends > 0)
          out.append(static_cast<std::size_t>(std::min(line_ends, 2)), '\n');
        else if (blank)
          out += ' ';
      }
      blank = false;
      line_ends = 0;
      out += text.substr(at, length);
    }
    at += length;
  }
  return normalize_nfc(out).text;
}

}  // namespace tandem
