#include "io/clinical/fold.hpp"

#include <utf8proc.h>

#include <array>
#include <charconv>

#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

bool stays(utf8proc_int32_t c, bool symbols) {
  const auto category = utf8proc_category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         (symbols && category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO);
}

void append_folded(char32_t c, bool symbols, std::string& out) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                           UTF8PROC_COMPAT | UTF8PROC_CASEFOLD);
  std::array<utf8proc_int32_t, 32> points;  // the longest decomposition has 18
  int last_class = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), points.data(),
                              static_cast<utf8proc_ssize_t>(points.size()), kOptions, &last_class);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(points.size()))
    throw Error(ErrorKind::kInternal, cat("folding of U+", std::hex, static_cast<std::uint32_t>(c)));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto point = points[static_cast<std::size_t>(i)];
    if (!stays(point, symbols)) continue;
    std::array<utf8proc_uint8_t, 4> buffer;
    const auto length = utf8proc_encode_char(point, buffer.data());
    out.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(length));
  }
}

std::uint64_t from_hex(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

std::string fold(std::string_view text, bool symbols) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char c = text[at];
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += c;
    else if (symbols || static_cast<unsigned char>(c) >= 0x80)
      append_folded(utf8_decode(text, at), symbols, out);
  }
  return out;
}

}  // namespace

std::string fold_text(std::string_view text) { return fold(text, false); }
std::string fold_answer(std::string_view text) { return fold(text, true); }

TextKey key_of(std::string_view text) {
  const std::string hex = sha256_hex(text);
  return {from_hex(std::string_view(hex).substr(0, 16)), from_hex(std::string_view(hex).substr(16, 16))};
}

double split_point(const TextKey& folded_question) {
  return static_cast<double>(folded_question.high >> 11) * 0x1p-53;
}

}  // namespace tandem
