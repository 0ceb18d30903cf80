#include "io/text/nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "io/text/nfc_unknown.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

// Code points of combining class 0 that can still join what stands before them: the second ones of canonical
// composites (UAX 15, NFC_QC = Maybe) and three Tibetan signs whose decomposition begins with a mark. Hangul
// vowels and finals are ranges of their own.
constexpr std::array<char32_t, 27> kJoiningStarters = {
    0x09BE, 0x09D7,  0x0B3E,  0x0B56,  0x0B57,  0x0BBE,  0x0BD7,  0x0CC2,  0x0CD5,
    0x0CD6, 0x0D3E,  0x0D57,  0x0DCF,  0x0DDF,  0x0F73,  0x0F75,  0x0F81,  0x102E,
    0x1B35, 0x11127, 0x1133E, 0x11357, 0x114B0, 0x114BA, 0x114BD, 0x115AF, 0x11930};

// Below it every code point is a starter that NFC leaves alone and that joins nothing before it.
constexpr char32_t kFirstJoining = 0x300;

// True for a code point that the reference's tables do not know: it stays as it is and joins nothing.
bool is_unknown(char32_t c) {
  if (c < kNfcUnknown.front().first) return false;
  const auto range = std::partition_point(kNfcUnknown.begin(), kNfcUnknown.end(),
                                          [&](const CodePointRange& r) { return r.last < c; });
  return range != kNfcUnknown.end() && range->first <= c;
}

// True where a normalisation of the text before c and one of the text from c on give that of both.
bool is_boundary(char32_t c) {
  if (c < kFirstJoining) return true;
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return false;
  const bool joins = std::binary_search(kJoiningStarters.begin(), kJoiningStarters.end(), c) ||
                     utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class != 0;
  return !joins || is_unknown(c);
}

// NFC of one starter with its marks (or of a longer text) into `out`, UTF-8.
class Composer {
 public:
  std::string_view compose(std::string_view text) {
    constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const auto size = static_cast<utf8proc_ssize_t>(text.size());
    auto count = utf8proc_decompose(bytes, size, points_.data(),
                                    static_cast<utf8proc_ssize_t>(points_.size()), kOptions);
    if (count > static_cast<utf8proc_ssize_t>(points_.size())) {
      points_.resize(static_cast<std::size_t>(count));
      count = utf8proc_decompose(bytes, size, points_.data(), count, kOptions);
    }
    if (count >= 0) count = utf8proc_normalize_utf32(points_.data(), count, kOptions);
    if (count < 0) throw Error(ErrorKind::kInternal, cat("NFC: ", utf8proc_errmsg(count)));
    out_.clear();
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      std::array<utf8proc_uint8_t, 4> buffer;
      const auto length = utf8proc_encode_char(points_[static_cast<std::size_t>(i)], buffer.data());
      out_.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(length));
    }
    return out_;
  }

 private:
  std::vector<utf8proc_int32_t> points_ = std::vector<utf8proc_int32_t>(64);
  std::string out_;
};

// Bytes that two texts have in common at their beginning, whole characters only.
std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  auto length = static_cast<std::size_t>(end - a.begin());
  while (length > 0 && length < a.size() && (static_cast<unsigned char>(a[length]) & 0xC0) == 0x80) --length;
  return length;
}

struct Part {
  std::size_t end = 0;
  bool changes = false;  // false: NFC certainly leaves it alone
};

// The part of `text` from `begin` on that is normalised by itself.
Part part_from(std::string_view text, std::size_t begin) {
  const char32_t first = utf8_decode(text, begin);
  std::size_t end = begin + utf8_length(text[begin]);
  if (is_unknown(first)) return {end, false};
  bool plain = first < kFirstJoining;
  while (end < text.size()) {
    const char32_t c = utf8_decode(text, end);
    // Plain characters are taken in one part: nothing in it can change unless a mark follows.
    if (is_boundary(c) && !(plain && c < kFirstJoining)) break;
    plain = plain && c < kFirstJoining;
    end += utf8_length(text[end]);
  }
  return {end, !plain};
}

}  // namespace

Normalized normalize_nfc(std::string_view text) {
  Normalized result;
  result.text.reserve(text.size());
  Composer composer;
  bool mapped = false;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const auto [end, changes] = part_from(text, begin);
    const std::string_view part = text.substr(begin, end - begin);
    const std::string_view composed = changes ? composer.compose(part) : part;
    const std::size_t common = common_prefix(part, composed);
    if (!mapped && composed != part) {
      mapped = true;
      result.origin.resize(result.text.size());
      std::iota(result.origin.begin(), result.origin.end(), std::size_t{0});
    }
    result.text += composed;
    if (mapped)
      for (std::size_t i = 0; i < composed.size(); ++i) result.origin.push_back(begin + std::min(i, common));
    begin = end;
  }
  return result;
}

}  // namespace tandem
