#include "io/text/utf8.hpp"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// Unicode 15, section 3.9, table 3-11: each maximal part of a sequence is replaced once.
TEST(Utf8, InvalidPartsBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xC3\xA9\xF0\x9F\x98\x80z"), "a\xC3\xA9\xF0\x9F\x98\x80z");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xED\xA0\x80"), r + r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\x80"), r);
  EXPECT_EQ(replace_invalid_utf8(""), "");
}

}  // namespace
}  // namespace tandem
