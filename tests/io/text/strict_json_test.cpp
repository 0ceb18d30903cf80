#include "io/text/strict_json.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace tandem {
namespace {

std::string error_of(const std::string& text, std::int64_t line = 1) {
  try {
    parse_strict_json(text, "f", line);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(StrictJson, ReadsWhatJsonAllows) {
  const std::string text =
      R"( {"a": [1, -2, 2.5, true, null, "\u00e9\ud83e\udd73\u0000"], "b": {"a": {}}, "\"": []} )";
  EXPECT_EQ(parse_strict_json(text, "f"), nlohmann::json::parse(text));
  EXPECT_EQ(parse_strict_json("7", "f"), 7);
}

TEST(StrictJson, NamesLineAndColumnOfADuplicateKey) {
  EXPECT_EQ(error_of(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
            R"(f line 1 column 25: the key "a" stands twice in one object)");
  EXPECT_EQ(error_of("{\"a\\\"b\": 1,\n  \"a\\u0022b\": 2}", 5),
            R"(f line 6 column 3: the key "a\"b" stands twice in one object)");
}

TEST(StrictJson, RefusesWhatOtherParsersLetPass) {
  for (const char* text : {"{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":-Infinity}", "{\"a\":1} {\"b\":2}",
                           "[1,]", "{\"a\":1,}", "{'a':1}", "{\"a\":01}", "{\"a\":1}x", "",
                           "{\"a\":", "\"\\ud800\"", "\"a\tb\"", "// c\n1", "[1] // c", "nul"}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("f line 1 column ")) << text << " -> " << error;
  }
  EXPECT_TRUE(error_of("{\"a\":NaN}").starts_with("f line 1 column 6")) << error_of("{\"a\":NaN}");
}

TEST(StrictJson, RefusesInvalidUtf8AndByteOrderMarks) {
  EXPECT_EQ(error_of("{\"a\": \"\xE9\"}"), "f line 1 column 8: not valid UTF-8");
  EXPECT_EQ(error_of("\xEF\xBB\xBF{}"), "f line 1 column 1: begins with a byte order mark (U+FEFF)");
}

TEST(StrictJson, RefusesBottomlessNesting) {
  EXPECT_NE(error_of(std::string(1000000, '[')).find("deeper than 100"), std::string::npos);
  EXPECT_EQ(error_of(std::string(100, '[') + std::string(100, ']')), "no error");
}

}  // namespace
}  // namespace tandem
