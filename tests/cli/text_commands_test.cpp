#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "io/text/own_tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/cli/render_command.hpp"
#include "src/cli/tokenize_command.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

class TextCommands : public testing::Test {
 protected:
  void SetUp() override { write_byte_level_tokenizer(folder_.path()); }

  std::string tokenize(const std::string& lines) {
    std::istringstream in(lines);
    std::ostringstream out, warnings;
    EXPECT_EQ(tokenize_command(folder_.path(), in, out), 0);
    return out.str();
  }
  std::string refusal(const std::string& lines) {
    try {
      tokenize(lines);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "no error";
  }

  support::TempFolder folder_;
};

TEST_F(TextCommands, TokenizeAnswersEachJsonStringWithAnArray) {
  EXPECT_EQ(tokenize("\"ab\"\n\n\"\"\r\n\"a\\u0000<|im_end|>\""), "[97,98]\n[]\n[97,0,258]\n");
  EXPECT_EQ(tokenize(""), "");
}

TEST_F(TextCommands, TokenizeRefusesWhatIsNoJsonStringWithItsLine) {
  EXPECT_EQ(refusal("\"a\"\n[\"b\"]\n"), "standard input line 2: array, not a JSON string");
  EXPECT_TRUE(refusal("\"a\"\nb\n").starts_with("standard input line 2 column 1: ")) << refusal("\"a\"\nb\n");
  EXPECT_EQ(refusal("\"\xFF\"\n"), "standard input line 1 column 2: not valid UTF-8");
}

TEST_F(TextCommands, RenderPrintsLineTextIdsTargetsAndDigest) {
  support::write_text(folder_ / "d.jsonl",
                      "\n"
                      R"({"ids":[1,2,3],"targets":[0,1,1]})"
                      "\n"
                      R"({"prompt":"\u00e9","completion":"r"})"
                      "\n");
  std::ostringstream out, warnings;
  EXPECT_EQ(render_command(folder_.path(), folder_ / "d.jsonl", {}, out, warnings), 0);
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  // The digest: sha256 of three int32 and three bytes, computed with Python's hashlib.
  EXPECT_EQ(
      line,
      R"({"line":2,"text":null,"ids":[1,2,3],"targets":[0,1,1],"digest":"8ee76fc302a97c32b65afd570f2f9b0204bbfd1e99f026729713dc42b2f82c7b"})");
  std::getline(lines, line);
  const json row = json::parse(line);
  EXPECT_EQ(row["line"], 3);
  EXPECT_EQ(
      row["text"],
      "<|im_start|>user\n\u00E9<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nr<|im_end|>\n");
  EXPECT_EQ(row["ids"].size(), row["targets"].size());
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(TextCommands, RenderSaysSoWhenItCannotWrite) {
  support::write_text(folder_ / "d.jsonl", R"({"ids":[1],"targets":[0]})");
  std::ostringstream out, warnings;
  out.setstate(std::ios::badbit);
  EXPECT_THROW(render_command(folder_.path(), folder_ / "d.jsonl", {}, out, warnings), Error);
}

}  // namespace
}  // namespace tandem
