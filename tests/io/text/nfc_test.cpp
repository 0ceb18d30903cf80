#include "io/text/nfc.hpp"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "io/text/nfc_unknown.hpp"
#include "io/text/utf8.hpp"
#include "tests/io/text/text_samples.hpp"

namespace tandem {
namespace {

// utf8proc's own normalisation of the whole text at once.
std::string whole(const std::string& text, int options) {
  utf8proc_uint8_t* out = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &out,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  EXPECT_GE(size, 0);
  const std::string result(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
  std::free(out);
  return result;
}

std::string utf8(char32_t c) {
  std::string text;
  test::append_utf8(text, c);
  return text;
}

bool is_unknown(char32_t c) {
  return std::any_of(kNfcUnknown.begin(), kNfcUnknown.end(),
                     [&](const CodePointRange& range) { return range.first <= c && c <= range.last; });
}

// Every canonical composite's decomposition holds the pairs that can join, so a missing one in the list of
// joining starters shows here.
TEST(Nfc, PartByPartEqualsTheWholeForEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if ((c >= 0xD800 && c < 0xE000) || is_unknown(c)) continue;
    const std::string one = utf8(c);
    for (const std::string& text : {one, whole(one, UTF8PROC_DECOMPOSE), "a\u0316" + one + "\u0334\u0301x"})
      ASSERT_EQ(normalize_nfc(text).text, whole(text, UTF8PROC_COMPOSE))
          << std::hex << static_cast<unsigned>(c);
  }
}

TEST(Nfc, PartByPartEqualsTheWholeForRandomText) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const std::string given = test::random_text(random);
    std::string text;
    for (std::size_t at = 0; at < given.size(); at += utf8_length(given[at]))
      if (!is_unknown(utf8_decode(given, at))) text.append(given, at, utf8_length(given[at]));
    const auto result = normalize_nfc(text);
    ASSERT_EQ(result.text, whole(text, UTF8PROC_COMPOSE));
    if (result.text == text) {
      for (std::size_t at = 0; at < text.size(); ++at) ASSERT_EQ(result.origin_of(at), at);
    }
    for (std::size_t at = 1; at < result.text.size(); ++at) {
      ASSERT_LE(result.origin_of(at - 1), result.origin_of(at));
      ASSERT_LT(result.origin_of(at), text.size());
    }
  }
}

// Expected values: tokenizers 0.23.3, normalizers.NFC.
TEST(Nfc, LeavesCodePointsAloneThatTheReferenceDoesNotKnow) {
  // U+1DF6 (class 232) and U+0EBA (class 9) are starters to it; U+0334 has class 1, U+0301 class 230.
  EXPECT_EQ(normalize_nfc("a\u0301\u1DF6\u0334").text, "\u00E1\u1DF6\u0334");
  EXPECT_EQ(normalize_nfc("a\u1DF6\u0301\u0334").text, "a\u1DF6\u0334\u0301");
  EXPECT_EQ(normalize_nfc("e\u0EBA\u0301").text, "e\u0EBA\u0301");
  // U+11938 is made of U+11935 and U+11930 since Unicode 13.
  EXPECT_EQ(normalize_nfc("\U00011935\U00011930").text, "\U00011935\U00011930");
  EXPECT_EQ(normalize_nfc("\U00011938\u0301\u0334").text, "\U00011938\u0334\u0301");
  for (char32_t c = 0; c < 0x110000; ++c)
    if (is_unknown(c)) {
      const std::string text = "e" + utf8(c) + "\u0301\u0334" + utf8(c);
      EXPECT_EQ(normalize_nfc(text).text, "e" + utf8(c) + "\u0334\u0301" + utf8(c))
          << std::hex << static_cast<unsigned>(c);
    }
}

TEST(Nfc, MapsUnchangedTextBehindAChangeToItself) {
  const auto result = normalize_nfc("\u212B and e\u0301!");
  EXPECT_EQ(result.text, "\u00C5 and \u00E9!");
  EXPECT_EQ(result.origin_of(0), 0u);
  EXPECT_EQ(result.origin_of(2), 3u);   // the blank behind the three bytes of U+212B
  EXPECT_EQ(result.origin_of(7), 8u);   // e with its mark
  EXPECT_EQ(result.origin_of(9), 11u);  // the last sign
  EXPECT_EQ(result.origin.size(), result.text.size());
}

TEST(Nfc, LeavesTheCommonBeginningOfAChangedPartInPlace) {
  // The newline joins nothing, but the marks behind it change places.
  const auto result = normalize_nfc("\n\u0315\u0300");
  EXPECT_EQ(result.text, "\n\u0300\u0315");
  EXPECT_EQ(result.origin, (std::vector<std::size_t>{0, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace tandem
