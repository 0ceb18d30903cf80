// The mirror's tokeniser and renderer against published vectors, and on awkward texts.
#include <gtest/gtest.h>

#include <sstream>

#include "src/base/error.hpp"
#include "src/mirror/chat_template.hpp"
#include "src/mirror/json_file.hpp"
#include "src/mirror/rows.hpp"
#include "src/mirror/samples.hpp"
#include "src/mirror/split.hpp"
#include "src/mirror/tokenizer.hpp"
#include "src/mirror/unicode.hpp"
#include "tests/mirror/tiny.hpp"
#include "tests/support/data.hpp"

namespace tandem::mirror {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(Split how, const std::string& text) {
  const auto views = split(how, text);
  return {views.begin(), views.end()};
}

TEST(MirrorSplit, Gpt2KeepsABlankWithTheWordBehindIt) {
  EXPECT_EQ(pieces(Split::kGpt2, "It's 12  men\n\n x?!"),
            (Pieces{"It", "'s", " 12", " ", " men", "\n\n", " x", "?!"}));
  EXPECT_EQ(pieces(Split::kGpt2, "I'LL"), (Pieces{"I", "'", "LL"}));
  EXPECT_EQ(pieces(Split::kGpt2, "a  "), (Pieces{"a", "  "}));
}

TEST(MirrorSplit, Qwen2SplitsDigitsAndKeepsLineEndsWithSymbols) {
  EXPECT_EQ(pieces(Split::kQwen2, "I'LL 12.\n\nx \n y"),
            (Pieces{"I", "'LL", " ", "1", "2", ".\n\n", "x", " \n", " y"}));
  EXPECT_EQ(pieces(Split::kQwen2, "a\u00a0b \t"), (Pieces{"a", "\u00a0b", " \t"}));
  EXPECT_EQ(pieces(Split::kQwen2, "'\u017f!"), (Pieces{"'\u017f", "!"})) << "the long s is an s without case";
  EXPECT_EQ(pieces(Split::kQwen2, "x\n \n  "), (Pieces{"x", "\n \n", "  "}));
}

TEST(MirrorSplit, Llama3TakesUpToThreeDigits) {
  EXPECT_EQ(pieces(Split::kLlama3, "12345 6"), (Pieces{"123", "45", " ", "6"}));
  EXPECT_EQ(pieces(Split::kDigits, "a12b"), (Pieces{"a", "1", "2", "b"}));
  EXPECT_EQ(pieces(Split::kDigits, "\u0663\u00bd"), (Pieces{"\u0663", "\u00bd"}));
}

TEST(MirrorSplit, RefusesPatternsItDoesNotKnowByNamingThem) {
  const auto json = nlohmann::json::parse(
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false}]})");
  try {
    read_splits(json);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("\\w+"), std::string::npos) << error.what();
  }
  EXPECT_THROW(read_splits(nlohmann::json::parse(R"({"type":"Whitespace"})")), std::invalid_argument);
  EXPECT_THROW(read_splits(nlohmann::json::parse(R"({"type":"ByteLevel","add_prefix_space":true})")),
               std::invalid_argument);
}

TEST(MirrorUnicode, ComposesWhatOlderTablesKnow) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  // U+11935 and U+11930 compose since Unicode 13 only.
  EXPECT_EQ(nfc("\U00011935\U00011930 e\u0301"), "\U00011935\U00011930 \u00e9");
}

// A byte-level tokenizer with a few merges.
nlohmann::json small_tokenizer() {
  nlohmann::json vocabulary;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    vocabulary[to_utf8(prints ? static_cast<char32_t>(byte) : static_cast<char32_t>(256 + next++))] = byte;
  }
  nlohmann::json merges;
  for (const auto& [left, right] : {std::pair("b", "c"), {"a", "b"}, {"ab", "c"}, {"a", "bc"}, {"a", "a"}}) {
    vocabulary[std::string(left) + right] = vocabulary.size();
    merges.push_back({left, right});
  }
  const auto added = [](int id, const char* content, bool normalized) {
    return nlohmann::json{{"id", id},        {"content", content}, {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},    {"normalized", normalized},
                          {"special", true}};
  };
  return {
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"added_tokens", {added(300, "<s>", false), added(301, "<s><s>", false), added(302, "\u00e9!", true)}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

class MirrorTokenizer : public testing::Test {
 protected:
  Tokenizer make(const nlohmann::json& text) {
    support::write_text(folder / "tokenizer.json", text.dump());
    return Tokenizer(folder / "tokenizer.json");
  }
  support::TempFolder folder;
  nlohmann::json json = small_tokenizer();
  std::int32_t id(const std::string& token) { return json["model"]["vocab"][token]; }
};

TEST_F(MirrorTokenizer, MergesThePairOfLowestRankAndOfThoseTheLeftmost) {
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector{id("abc")})) << "b c first, then a bc";
  EXPECT_EQ(tokenizer.encode("aaa"), (std::vector{id("aa"), id("a")}));
  EXPECT_EQ(tokenizer.encode("abab"), (std::vector{id("ab"), id("ab")}));
}

TEST_F(MirrorTokenizer, TakesTheLongestAddedTokenAndNormalisesBetween) {
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("a<s><s>b<s>"), (std::vector{id("a"), 301, id("b"), 300}));
  EXPECT_EQ(tokenizer.encode("e\u0301!"), (std::vector{302}));
  EXPECT_EQ(tokenizer.encode(""), std::vector<std::int32_t>{});
}

TEST_F(MirrorTokenizer, SpellsOutAddedTokensOfRowsOnly) {
  const Tokenizer tokenizer = make(json);
  const std::vector<Part> parts = {{"<s>", false, false}, {"<s>a", true, true}, {"<s>", true, false}};
  const Encoded acting = tokenizer.encode(parts), spelled = tokenizer.encode(parts, true);
  EXPECT_EQ(acting.ids, (std::vector{301, id("a"), 300}));
  EXPECT_EQ(acting.targets, (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(spelled.ids, (std::vector{300, id("<"), id("s"), id(">"), id("a"), 300}));
  EXPECT_EQ(spelled.targets, (std::vector<std::uint8_t>{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(tokenizer.added_in_row({{"x", false, false}, {"a<s>", true, true}}), "<s>");
  EXPECT_EQ(tokenizer.added_in_row({{"<s>", false, false}, {"a", true, true}}), std::nullopt);
}

TEST_F(MirrorTokenizer, ATokenIsATargetIfItsFirstByteIs) {
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode({{"a"}, {"b", true}, {"c"}}).targets, (std::vector<std::uint8_t>{0}));
  const Encoded two = tokenizer.encode({{"xa", true}, {"a"}});
  EXPECT_EQ(two.targets, (std::vector<std::uint8_t>{1, 1}));
}

TEST_F(MirrorTokenizer, RefusesWhatItDoesNotKnow) {
  for (const auto& [path, value] : {std::pair("/model/type", nlohmann::json("Unigram")),
                                    {"/model/byte_fallback", true},
                                    {"/post_processor", {{"type", "TemplateProcessing"}}},
                                    {"/normalizer/type", "NFKC"},
                                    {"/added_tokens/0/lstrip", true},
                                    {"/model/merges", nlohmann::json::array({{"a", "zzz"}})}}) {
    auto changed = json;
    changed[nlohmann::json::json_pointer(path)] = value;
    EXPECT_THROW(make(changed), Error) << path;
  }
}

TEST_F(MirrorTokenizer, AnUnknownTokenMattersOnlyWhereAByteHasNone) {
  json["model"]["unk_token"] = "<s>";
  json["truncation"] = {{"max_length", 1}};
  EXPECT_EQ(make(json).encode("ab").size(), 1u);
  json["model"]["vocab"].erase("z");
  EXPECT_THROW(make(json), Error);
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(make(json).encode("zxz"), (std::vector{id("x")}));
}

class MirrorVectors : public testing::Test {
 protected:
  void SetUp() override {
    if (!support::data_path("qwen3/tokenizer.json")) GTEST_SKIP() << support::kNoData;
  }
  nlohmann::json vectors(const std::string& name) {
    return support::read_json(*support::data_path("vectors/" + name));
  }
};

TEST_F(MirrorVectors, QwensVocabularyGivesThePublishedIds) {
  const Tokenizer tokenizer(*support::data_path("qwen3/tokenizer.json"));
  for (const auto& row : vectors("llama_cpp_qwen2.json"))
    EXPECT_EQ(tokenizer.encode(row.at("text").get<std::string>()),
              row.at("ids").get<std::vector<std::int32_t>>())
        << row.at("text");
}

TEST_F(MirrorVectors, ConversationsRenderAsTheModelsTemplatesDo) {
  const auto qwen3 = own_template(*support::data_path("qwen3")),
             smollm2 = own_template(*support::data_path("smollm2"));
  const auto later =
      support::read_json(*support::data_path("qwen3/tokenizer_config.later.json")).at("chat_template");
  EXPECT_EQ(choose_template("auto", qwen3, ""), ChatTemplate::kQwen3);
  EXPECT_EQ(choose_template("auto", later.get<std::string>(), ""), ChatTemplate::kQwen3);
  EXPECT_EQ(choose_template("auto", smollm2, ""), ChatTemplate::kSmolLm2);
  EXPECT_THROW(choose_template("auto", *qwen3 + "{{- 'more' }}", ""), Error);
  EXPECT_THROW(choose_template("auto", "more " + *smollm2, ""), Error);
  int n_compared = 0;
  for (const auto& row : vectors("chat_template_rendered_jinja2.json")) {
    if (row.at("kwargs").value("add_generation_prompt", false)) continue;
    std::variant<std::vector<Turn>, TokenisedRow> read;
    try {
      read = read_row(nlohmann::json{{"messages", row.at("messages")}}.dump());
    } catch (const std::invalid_argument&) {
      continue;  // tools
    }
    for (const auto& [name, which] :
         {std::pair("qwen3_old", ChatTemplate::kQwen3), {"smollm2", ChatTemplate::kSmolLm2}}) {
      std::string text;
      for (const Part& part : render(which, std::get<0>(read), false)) text += part.text;
      EXPECT_EQ(text, row.at(name)) << row.at("name");
      ++n_compared;
    }
  }
  EXPECT_GE(n_compared, 12);
}

TEST(MirrorChatTemplate, OfSeveralTheModelsOwnIsTheDefault) {
  const support::TempFolder folder;
  const auto own = [&](const std::string& list) {
    support::write_text(folder / "tokenizer_config.json", R"({"chat_template":)" + list + "}");
    return own_template(folder.path());
  };
  EXPECT_EQ(own(R"([{"name":"tool_use","template":"t"},{"name":"default","template":"d"}])"), "d");
  EXPECT_EQ(own("null"), std::nullopt);
  EXPECT_THROW(own(R"([{"name":"tool_use","template":"t"}])"), Error);
}

TEST(MirrorChatTemplate, OthersAreRefused) {
  EXPECT_EQ(choose_template("auto",
                            "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
                            "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}",
                            ""),
            ChatTemplate::kChatMl);
  EXPECT_THROW(choose_template("auto", "{{ messages[0].content }}", ""), Error);
  EXPECT_THROW(choose_template("auto", std::nullopt, ""), Error);
  EXPECT_EQ(choose_template("qwen3", std::nullopt, ""), ChatTemplate::kQwen3);
}

std::string marked(const std::vector<Turn>& turns, bool last_only = false) {
  std::string text;
  for (const Part& part : render(ChatTemplate::kQwen3, turns, last_only))
    if (!part.text.empty()) text += part.target ? "[" + part.text + "]" : part.text;
  return text;
}

TEST(MirrorChatTemplate, ScoresAnswersAndTheirEndButNoEmptyThinking) {
  const Turn question{"user", "q", {}}, answer{"assistant", "a", {}}, thinking{"assistant", "a", "r"};
  EXPECT_EQ(marked({question, answer}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[a][<|im_end|>]\n");
  EXPECT_EQ(marked({question, thinking}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
            "[<think>\n][r][\n</think>\n\n][a][<|im_end|>]\n");
  EXPECT_EQ(
      marked({question, thinking, question, answer}, true),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n[a][<|im_end|>]\n");
}

TEST(MirrorRows, FormsAreToldApart) {
  const auto turns = [](const std::string& row) {
    std::ostringstream out;
    const auto read = read_row(row);
    for (const Turn& turn : std::get<std::vector<Turn>>(read))
      out << turn.role[0] << ":" << turn.content << "|";
    return out.str();
  };
  EXPECT_EQ(turns(R"({"prompt":"p","completion":"c"})"), "u:p|a:c|");
  EXPECT_EQ(turns(R"({"instruction":"i","input":"","output":"o"})"), "u:i|a:o|");
  EXPECT_EQ(turns(R"({"instruction":"i","input":"n","output":"o","system":"s"})"), "s:s|u:i\n\nn|a:o|");
  EXPECT_EQ(
      turns(R"({"conversations":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}],"system":"s"})"),
      "s:s|u:h|a:g|");
  EXPECT_EQ(turns(R"({"instruction":"","input":"n","output":"o"})"), "u:n|a:o|");
  EXPECT_EQ(
      turns(
          R"({"conversations":[{"role":"user","content":"h","tool_calls":[]},{"from":"gpt","value":"g"}]})"),
      "u:h|a:g|");
  EXPECT_EQ(std::get<TokenisedRow>(read_row(R"({"ids":[1,2],"targets":[0,1]})")).ids, (std::vector{1, 2}));
  for (const char* row :
       {"[]", "{}", "x", R"({"prompt":"p"})", R"({"prompt":"p","completion":"c","messages":[]})",
        R"({"messages":[]})", R"({"messages":[{"role":"tool","content":"c"}]})",
        R"({"messages":[{"role":"user","content":"c","name":"n"}]})",
        R"({"messages":[{"role":"user","content":null}]})", R"({"ids":[1],"targets":[2]})",
        R"({"ids":[1,2],"targets":[0]})", R"({"ids":[-1],"targets":[0]})",
        R"({"prompt":"p","prompt":"q","completion":"c"})",
        R"({"conversations":[{"from":"system","value":"h"}],"system":"s"})",
        R"({"conversations":[{"from":"human","value":"h","weight":1}]})",
        R"({"messages":[{"role":"user","content":"c"}],"prompt":"p"})",
        R"({"messages":[{"role":"user","content":"c","reasoning_content":"r"}]})",
        R"({"messages":[{"role":"user","content":"c","tool_calls":[1]}]})",
        R"({"instruction":"i","output":"o","history":[["q","a"]]})"})
    EXPECT_THROW(read_row(row), std::invalid_argument) << row;
}

}  // namespace
}  // namespace tandem::mirror
