// What a tokenizer.json may ask for: done, or refused by name.
#include <gtest/gtest.h>

#include "io/text/byte_level.hpp"
#include "io/text/split_pattern.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "tests/support/data.hpp"

namespace tandem {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

// 256 bytes (id = byte), ab = 256, abc = 257, <x> = 300.
json small() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json added = {{"id", 300}, {"content", "<x>"}, {"special", true}, {"normalized", false}};
  return {{"version", "1.0"},
          {"added_tokens", json::array({added})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab c"}}}}};
}

Ids ids(const json& file, const std::string& text) {
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "f");
  return Encoder(tokenizer).encode(text).ids;
}

// The file with one value changed, given by a JSON pointer.
std::string error_of(const char* pointer, const json& value) {
  json file = small();
  file[json::json_pointer(pointer)] = value;
  try {
    Tokenizer::parse(file.dump(), "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

void expect_refused(const char* pointer, const json& value, const std::string& part) {
  const std::string error = error_of(pointer, value);
  EXPECT_TRUE(error.starts_with("f: ") && error.find(part) != std::string::npos) << pointer << ": " << error;
}

TEST(TokenizerFile, MergesByRankAndTakesPairsEitherWay) {
  EXPECT_EQ(ids(small(), "abcab<x>c"), (Ids{257, 256, 300, 'c'}));
  json file = small();
  file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  EXPECT_EQ(ids(file, "abcab<x>c"), (Ids{257, 256, 300, 'c'}));
}

TEST(TokenizerFile, TakesAWholePieceOnlyUnderIgnoreMerges) {
  json file = small();
  file["model"]["vocab"]["xyz"] = 258;
  EXPECT_EQ(ids(file, "xyz"), (Ids{'x', 'y', 'z'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids(file, "xyz"), (Ids{258}));
}

TEST(TokenizerFile, FindsTheLongestAddedTokenAndNormalisedOnesAfterNfc) {
  json file = small();
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"].push_back({{"id", 301}, {"content", "<x>y"}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 302}, {"content", "\u00E9!"}, {"normalized", true}});
  EXPECT_EQ(ids(file, "<x><x>y<x>"), (Ids{300, 301, 300}));
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "f");
  const auto result = Encoder(tokenizer).encode("ae\u0301!b");
  EXPECT_EQ(result.ids, (Ids{'a', 302, 'b'}));
  EXPECT_EQ(result.first_byte, (std::vector<std::size_t>{0, 1, 5}));
}

TEST(TokenizerFile, RefusesPartsItDoesNotKnowByName) {
  expect_refused("/version", "2.0", "version \"2.0\"");
  expect_refused("/normalizer", {{"type", "NFKC"}}, "normalizer NFKC");
  expect_refused("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
                 "normalizer Lowercase");
  expect_refused("/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer Metaspace");
  expect_refused("/pre_tokenizer", {{"type", "Digits"}}, "ByteLevel is missing");
  expect_refused("/pre_tokenizer", nullptr, "ByteLevel is missing");
  expect_refused("/pre_tokenizer/add_prefix_space", true, "add_prefix_space");
  expect_refused("/post_processor", {{"type", "TemplateProcessing"}}, "post_processor TemplateProcessing");
  expect_refused("/decoder", {{"type", "Metaspace"}}, "decoder Metaspace");
  expect_refused("/model/type", "Unigram", "model type \"Unigram\"");
  expect_refused("/model/dropout", 0.1, "dropout");
  expect_refused("/model/byte_fallback", true, "byte_fallback");
  expect_refused("/model/end_of_word_suffix", "</w>", "end_of_word_suffix");
  expect_refused("/model/continuing_subword_prefix", "##", "continuing_subword_prefix");
  expect_refused("/added_tokens/0/lstrip", true, "lstrip");
  expect_refused("/added_tokens/0/rstrip", true, "rstrip");
  expect_refused("/added_tokens/0/single_word", true, "single_word");
}

TEST(TokenizerFile, RefusesContradictions) {
  expect_refused("/model/merges/1", "ab d", "\"abd\"");
  expect_refused("/model/merges/1", "a b c", "merges[1]");
  expect_refused("/model/merges", "x", "merges");
  expect_refused("/model/vocab/abc", 256, "id 256 stands for two tokens");
  expect_refused("/model/vocab/abc", -1, "\"abc\"");
  expect_refused("/model/vocab/abc", 4e9, "\"abc\"");
  expect_refused("/model/vocab", json::object(), "vocab");
  expect_refused("/added_tokens/0/content", "", "content");
  expect_refused("/added_tokens/0/content", "ab", "has id 300, but 256");
  expect_refused("/added_tokens/0/id", 256, "id 256 stands for two tokens");
  expect_refused("/added_tokens/1", small()["added_tokens"][0], "stands twice");
}

TEST(TokenizerFile, RefusesPatternsThatPcre2WouldReadDifferently) {
  const auto split = [](const std::string& pattern) {
    return json{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          small()["pre_tokenizer"]}}};
  };
  for (const char* pattern :
       {R"(\w+)", R"(\h)", R"(\b)", R"(^a)", R"(a$)", R"([a&&b])", R"([[:alpha:]])", R"((?m:a))",
        R"(\p{Han})", R"(\p{^L})", R"(a{,3})", R"(a{2}+)", R"(\Ka)", R"([])", R"([a)", R"(a*)", R"((a)"})
    expect_refused("/pre_tokenizer", split(pattern), "split pattern");
  EXPECT_EQ(error_of("/pre_tokenizer", split(R"((?i:'s)|\p{N}{1,3}|[^\r\n\p{L}]?\p{L}+|\s+(?!\S)|\s+)")),
            "no error");
  expect_refused("/pre_tokenizer",
                 {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}}, "Removed");
}

std::vector<std::string> pieces(const std::string& pattern, const std::string& text) {
  const SplitPattern compiled(pattern);
  std::vector<Span> spans;
  Splitter().split(compiled, text, {0, text.size()}, spans);
  std::vector<std::string> list;
  for (const Span span : spans) list.push_back(text.substr(span.begin, span.end - span.begin));
  return list;
}

TEST(SplitPattern, TakesWhiteSpaceAsUnicodeDoes) {
  using List = std::vector<std::string>;
  EXPECT_EQ(pieces(R"(\s+)", "a\u180Eb"), (List{"a\u180Eb"}));  // no white space since Unicode 6.3
  EXPECT_EQ(pieces(R"(\S+)", "a\u180Eb \u3000c"), (List{"a\u180Eb", " \u3000", "c"}));
  for (const char* space : {"\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00A0", "\u1680", "\u2000",
                            "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    EXPECT_EQ(pieces(R"(\s)", std::string("a") + space), (List{"a", space}));
    EXPECT_EQ(pieces(R"([^\s])", std::string(space) + space), (List{std::string(space) + space}));
    EXPECT_EQ(pieces(R"([^\S])", std::string("a") + space), (List{"a", space}));
  }
  EXPECT_EQ(pieces(R"(\s)", "\u200B"), (List{"\u200B"}));
}

TEST(SplitPattern, SaysSoWhenTheMatchersLimitsAreReached) {
  // Catastrophic backtracking: better an error than a hang or a wrong split.
  EXPECT_THROW(pieces(R"((?:a+)+[bc])", std::string(5000, 'a')), Error);
}

}  // namespace
}  // namespace tandem
