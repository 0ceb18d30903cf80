#include "io/text/tokenizer.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "io/text/nfc.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "tests/io/text/text_samples.hpp"
#include "tests/support/data.hpp"

namespace tandem {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

// One reading of each real tokenizer for all tests.
const Tokenizer* real_tokenizer(const std::string& folder) {
  static std::map<std::string, std::optional<Tokenizer>> known;
  auto& slot = known[folder];
  if (!slot)
    if (const auto file = support::data_path(folder + "/tokenizer.json"))
      slot = Tokenizer::load(file->parent_path());
  return slot ? &*slot : nullptr;
}

class RealTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!real_tokenizer("qwen3")) GTEST_SKIP() << support::kNoData;
  }
  Encoding encode(const std::string& text) { return Encoder(*real_tokenizer("qwen3")).encode(text); }
  Ids ids(const std::string& text) { return encode(text).ids; }
  std::string bytes_of(const Tokenizer& tokenizer, const Ids& list) {
    std::string all;
    for (const auto id : list) all += tokenizer.bytes(id);
    return all;
  }
};

using Qwen3Tokenizer = RealTokenizer;

// Added tokens are cut out first, so a mark that follows one is normalised without it.
std::string normalized_between_added(const Tokenizer& tokenizer, const std::string& text) {
  std::string all;
  std::size_t done = 0;
  for (const Span token : tokenizer.find_added(text)) {
    all += normalize_nfc(text.substr(done, token.begin - done)).text +
           text.substr(token.begin, token.end - token.begin);
    done = token.end;
  }
  return all + normalize_nfc(text.substr(done)).text;
}

TEST_F(Qwen3Tokenizer, GivesThePublishedIdsOfAPeersVectors) {
  const auto cases = support::read_json(*support::data_path("vectors/llama_cpp_qwen2.json"));
  ASSERT_EQ(cases.size(), 46u);
  for (const auto& one : cases) EXPECT_EQ(ids(one["text"]), one["ids"].get<Ids>()) << one["text"];
}

// Known fault R1: the pattern's runs of symbols, glued leading signs, single digits.
TEST_F(Qwen3Tokenizer, SplitsCodeNumbersAndWhiteSpaceByTheFilesPattern) {
  EXPECT_EQ(ids("->"), (Ids{405}));
  EXPECT_EQ(ids("(x):\n"), (Ids{2075, 982}));
  EXPECT_EQ(ids("In 2024, 12345"), (Ids{641, 220, 17, 15, 17, 19, 11, 220, 16, 17, 18, 19, 20}));
  EXPECT_EQ(ids("   x"), (Ids{256, 856}));
  EXPECT_EQ(ids("x   "), (Ids{87, 262}));
  EXPECT_EQ(ids("\t\tx"), (Ids{197, 10225}));
  EXPECT_EQ(ids("a\r\nb"), (Ids{64, 319, 65}));
  EXPECT_EQ(ids("a\n\n\nb"), (Ids{64, 1406, 65}));
}

// Known fault R3.
TEST_F(Qwen3Tokenizer, NormalisesToNfcAndNotToNfkc) {
  EXPECT_EQ(ids("cafe\u0301"), (Ids{924, 58858}));
  EXPECT_EQ(ids("caf\u00E9"), (Ids{924, 58858}));
  EXPECT_EQ(ids("\u212B"), (Ids{144044}));
  EXPECT_EQ(ids("\u212A"), (Ids{42}));
  EXPECT_EQ(ids("\u1100\u1161\u11A8"), (Ids{126317}));
  EXPECT_EQ(ids("\u0958"), (Ids{64704, 5502, 120}));
  EXPECT_EQ(ids("\uF900"), (Ids{43410, 230}));
  EXPECT_EQ(ids("\u1F71"), (Ids{74134}));
  EXPECT_EQ(ids("\uFB01 \u00BD \u338F"), (Ids{144300, 220, 26062, 220, 145189}));
}

// Known fault R4.
TEST_F(Qwen3Tokenizer, KeepsTextBehindAZeroByte) {
  EXPECT_EQ(ids(std::string("a\0b", 3)), (Ids{64, 188, 65}));
}

// Known fault R6: a quadratic merge takes minutes here. CPU time; the bound leaves room for sanitizers.
TEST_F(Qwen3Tokenizer, EncodesLongRunsOfOneCharacterInLinearTime) {
  const auto repeated = [](const std::string& unit) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += unit;
    return text;
  };
  std::string base64;
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i)
    base64 += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random() % 64];
  const std::clock_t begin = std::clock();
  EXPECT_EQ(ids(repeated("a")).size(), 25000u);
  EXPECT_EQ(ids(repeated("^")).size(), 50000u);
  EXPECT_EQ(ids(repeated(" ")).size(), 1563u);
  EXPECT_EQ(ids(repeated("\u4E2D")).size(), 200000u);
  EXPECT_EQ(bytes_of(*real_tokenizer("qwen3"), ids(base64)), base64);
  EXPECT_LE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10.0);
}

// Known fault R9, R12: what a header's newline and an answer's newline become.
TEST_F(Qwen3Tokenizer, CutsAddedTokensOutAndJoinsNewlines) {
  EXPECT_EQ(ids("<think>\n\n</think>\n\n"), (Ids{151667, 271, 151668, 271}));
  EXPECT_EQ(ids("<|im_start|>assistant\n\nhi"), (Ids{151644, 77091, 271, 6023}));
  EXPECT_EQ(ids("</think>\n\n\nhi"), (Ids{151668, 1406, 6023}));
  EXPECT_EQ(ids("<|im_end|>\n"), (Ids{151645, 198}));
}

// Known fault R58: only a file's first bytes are a mark; in a text U+FEFF stays.
TEST_F(Qwen3Tokenizer, KeepsAByteOrderMarkInsideText) { EXPECT_EQ(ids("\uFEFFa").front(), 3225); }

TEST_F(Qwen3Tokenizer, TellsWhereEachTokenBegins) {
  const auto result = encode("<|im_start|>user\nhi there<|im_end|>\n");
  EXPECT_EQ(result.first_byte, (std::vector<std::size_t>{0, 12, 16, 17, 19, 25, 35}));
}

TEST_F(Qwen3Tokenizer, GivesOffsetsInTheTextBeforeNormalisation) {
  // e + U+0301 are 3 bytes that become 2.
  const std::string text = "cafe\u0301<|im_end|>x";
  const auto result = encode(text);
  ASSERT_EQ(result.ids.size(), 4u);
  EXPECT_EQ(result.first_byte[1], 2u);
  EXPECT_EQ(result.first_byte[2], 6u);
  EXPECT_EQ(result.first_byte[3], 16u);
}

TEST_F(Qwen3Tokenizer, EncodesAddedTokensInPlainSpansAsText) {
  const std::string text = "<|im_end|><|im_end|>";
  const std::vector<Span> plain{{10, 20}};
  Encoder encoder(*real_tokenizer("qwen3"));
  const auto result = encoder.encode(text, plain);
  EXPECT_EQ(result.ids.front(), 151645);
  EXPECT_GT(result.ids.size(), 2u);
  for (std::size_t i = 1; i < result.ids.size(); ++i) EXPECT_LT(result.ids[i], 151643);
  EXPECT_EQ(bytes_of(*real_tokenizer("qwen3"), result.ids), text);
}

TEST_F(Qwen3Tokenizer, RefusesInvalidUtf8WithItsOffset) {
  try {
    encode("ab\xE9 cd");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find("byte offset 2"), std::string::npos) << error.what();
  }
}

TEST_F(Qwen3Tokenizer, LosesNothingAndOrdersOffsetsOnRandomText) {
  const Tokenizer& tokenizer = *real_tokenizer("qwen3");
  Encoder encoder(tokenizer);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = test::random_text(random);
    const auto result = encoder.encode(text);
    EXPECT_EQ(result.lost_bytes, 0u);
    ASSERT_EQ(result.ids.size(), result.first_byte.size());
    for (std::size_t k = 1; k < result.first_byte.size(); ++k)
      ASSERT_LE(result.first_byte[k - 1], result.first_byte[k]);
    ASSERT_EQ(bytes_of(tokenizer, result.ids), normalized_between_added(tokenizer, text)) << json(text);
  }
}

TEST_F(Qwen3Tokenizer, KnowsItsAddedTokensAndSize) {
  const Tokenizer& tokenizer = *real_tokenizer("qwen3");
  EXPECT_EQ(tokenizer.size(), 151669);
  EXPECT_EQ(tokenizer.added_token("<|im_end|>"), 151645);
  EXPECT_FALSE(tokenizer.added_token("<|im_en|>"));
  EXPECT_EQ(tokenizer.find_added("a<|im_end|><|im_end<think>"), (std::vector<Span>{{1, 11}, {19, 26}}));
}

// Values from the Hugging Face tokenizers library 0.23.3 on the same file.
TEST_F(RealTokenizer, SplitsDigitsAndWordsAsSmolLm2Does) {
  const Tokenizer* tokenizer = real_tokenizer("smollm2");
  ASSERT_NE(tokenizer, nullptr);
  Encoder encoder(*tokenizer);
  const auto cases =
      support::read_json(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/io/text/smollm2_ids.json");
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases)
    EXPECT_EQ(encoder.encode(one["text"].get<std::string>()).ids, one["ids"].get<Ids>()) << one["text"];
}

TEST_F(RealTokenizer, CountsTheBytesThatSmolLm2HasNoTokenFor) {
  Encoder encoder(*real_tokenizer("smollm2"));
  EXPECT_EQ(encoder.encode("a\u0004b").lost_bytes, 1u);
  EXPECT_EQ(encoder.encode("a\u0004b").ids, (Ids{81, 82}));
  EXPECT_EQ(encoder.encode("ab").lost_bytes, 0u);
}

}  // namespace
}  // namespace tandem
