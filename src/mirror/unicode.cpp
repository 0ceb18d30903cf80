#include "src/mirror/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "io/text/nfc_unknown.hpp"
#include "src/mirror/check.hpp"

namespace tandem::mirror {
namespace {

bool is_unknown(char32_t c) {
  return std::any_of(kNfcUnknown.begin(), kNfcUnknown.end(),
                     [c](const CodePointRange& range) { return range.first <= c && c <= range.last; });
}

std::string compose(std::string_view utf8) {
  utf8proc_uint8_t* out = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()),
                                 static_cast<utf8proc_ssize_t>(utf8.size()), &out,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  check(size >= 0, "normal form C: ", utf8proc_errmsg(size));
  std::string text(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
  std::free(out);
  return text;
}

}  // namespace

std::vector<CodePoint> code_points(std::string_view utf8) {
  std::vector<CodePoint> points;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
  for (std::size_t i = 0; i < utf8.size();) {
    utf8proc_int32_t value = 0;
    const auto n = utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(utf8.size() - i), &value);
    check(n > 0, "text is no UTF-8");
    points.push_back({static_cast<char32_t>(value), i});
    i += static_cast<std::size_t>(n);
  }
  points.push_back({0, utf8.size()});
  return points;
}

std::string to_utf8(char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n)};
}

bool is_letter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_number(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string nfc(std::string_view utf8) {
  const bool ascii =
      std::all_of(utf8.begin(), utf8.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(utf8);
  std::string text;
  std::size_t begin = 0;  // of what is not yet normalised
  const auto points = code_points(utf8);
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    if (!is_unknown(points[i].value)) continue;
    const std::size_t here = points[i].begin, next = points[i + 1].begin;
    text += compose(utf8.substr(begin, here - begin));
    text += utf8.substr(here, next - here);
    begin = next;
  }
  return text + compose(utf8.substr(begin));
}

}  // namespace tandem::mirror
