// The three sources' files: what is read, what is refused and with which words.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "io/clinical/item_reader.hpp"
#include "src/base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

class Readers : public testing::Test {
 protected:
  using Open = std::function<std::unique_ptr<ItemReader>(const std::filesystem::path&)>;

  std::vector<ClinicalItem> read(const std::string& text, const Open& open) {
    support::write_text(file(), text);
    const auto reader = open(file());
    evidence_ = reader->evidence();
    std::vector<ClinicalItem> items;
    while (auto item = reader->next()) items.push_back(std::move(*item));
    return items;
  }
  // The error's text without the folder; its kind goes to kind_.
  std::string refusal(const std::string& text, const Open& open) {
    try {
      read(text, open);
    } catch (const Error& error) {
      kind_ = error.kind();
      std::string what = error.what();
      const std::string folder = folder_.path().string() + "/";
      if (what.starts_with(folder)) what.erase(0, folder.size());
      EXPECT_EQ(what.find('\n'), std::string::npos);
      return what;
    }
    return "no error";
  }
  std::filesystem::path file() const { return folder_ / "f"; }

  static Open medmcqa(std::optional<int> base = {}) {
    return [base](const auto& file) { return read_medmcqa(file, base); };
  }
  static std::string mcqa(const std::string& cop, const std::string& exp = "null") {
    return R"({"question":"Q","exp":)" + exp + R"(,"cop":)" + cop +
           R"(,"opa":"w","opb":"x","opc":"y","opd":"z","id":"i"})" + "\n";
  }

  support::TempFolder folder_;
  std::string evidence_;
  ErrorKind kind_ = ErrorKind::kInternal;
};

TEST_F(Readers, MedmcqaTellsTheBaseByTheValuesSeen) {
  auto items = read(mcqa("1") + "\n" + mcqa("4"), medmcqa());
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].right_option, 0u);
  EXPECT_EQ(items[1].right_option, 3u);
  EXPECT_EQ(items[1].line, 3) << "blank lines count";
  EXPECT_EQ(items[1].id, "i");
  EXPECT_EQ(evidence_, "cop counts from 1: line 3 has 4");
  items = read(mcqa("1") + mcqa("0"), medmcqa());
  EXPECT_EQ(items[0].right_option, 1u);
  EXPECT_EQ(items[1].right_option, 0u);
  EXPECT_EQ(evidence_, "cop counts from 0: line 2 has 0");
}

TEST_F(Readers, MedmcqaTellsTheBaseByAnnouncedLettersElse) {
  std::string rows = mcqa("1");
  for (int i = 0; i < 5; ++i) rows += mcqa("2", "\"Ans. B. x\"");
  EXPECT_EQ(read(rows, medmcqa())[0].right_option, 0u);
  EXPECT_EQ(evidence_, "cop counts from 1: 5 of 5 letters announced in exp say so");
  rows = "";
  for (int i = 0; i < 6; ++i) rows += mcqa("2", "\"Ans. C. y\"");
  EXPECT_EQ(read(rows, medmcqa())[0].right_option, 2u);
}

TEST_F(Readers, MedmcqaAsksForTheBaseWhereNothingShowsIt) {
  std::string undecided = mcqa("1") + mcqa("2") + mcqa("3");
  for (int i = 0; i < 4; ++i) undecided += mcqa("2", "\"Ans. B. x\"");
  EXPECT_EQ(refusal(undecided, medmcqa()),
            "f: every cop is 1, 2 or 3, and the explanations do not show whether it counts from 0 or from 1; "
            "say which "
            "with --cop-base");
  EXPECT_EQ(kind_, ErrorKind::kUsage);
  for (int i = 0; i < 6; ++i) undecided += mcqa("2", "\"Ans. C. y\"");
  EXPECT_NE(refusal(undecided, medmcqa()), "no error") << "letters that disagree show nothing";
  EXPECT_EQ(read(undecided, medmcqa(0))[0].right_option, 1u);
  EXPECT_EQ(read(undecided, medmcqa(1))[0].right_option, 0u);
}

TEST_F(Readers, MedmcqaRefusesWhatTheBaseExcludes) {
  EXPECT_EQ(refusal(mcqa("4") + mcqa("0"), medmcqa()),
            "f line 2: cop = 0, but cop counts from 1: line 1 has 4");
  EXPECT_EQ(kind_, ErrorKind::kInput);
  EXPECT_EQ(refusal(mcqa("0") + mcqa("4"), medmcqa()),
            "f line 2: cop = 4, but cop counts from 0: line 1 has 0");
  EXPECT_EQ(refusal(mcqa("0"), medmcqa(1)), "f line 1: cop = 0, but cop counts from 1: --cop-base says so");
  EXPECT_EQ(refusal(mcqa("5"), medmcqa()), "f line 1: cop = 5 is no option's number");
  EXPECT_EQ(refusal(mcqa("1.5"), medmcqa()), "f line 1: cop = 1.5 is no integer");
  EXPECT_EQ(refusal(mcqa("\"1\""), medmcqa()), "f line 1: cop = \"1\" is no integer");
}

TEST_F(Readers, MedmcqaRowsWithoutAnAnswerAreKnownAsSuch) {
  const auto items = read(mcqa("null") + mcqa("-1") + mcqa("0"), medmcqa());
  EXPECT_EQ(items[0].reason, Reason::kNoAnswer);
  EXPECT_EQ(items[1].reason, Reason::kNoAnswer);
  EXPECT_FALSE(items[2].reason);
}

TEST_F(Readers, JsonFaultsNameLineAndColumn) {
  EXPECT_EQ(refusal(mcqa("4") + "{\"question\":\"Q\"", medmcqa()).substr(0, 18), "f line 2 column 16");
  EXPECT_EQ(refusal("[]\n", medmcqa()), "f line 1: a row is a JSON object, not array");
  EXPECT_EQ(refusal("{\"cop\":4}\n", medmcqa()),
            "f line 1: the row has no question; is this the right source for the file?");
  EXPECT_EQ(refusal(R"({"question":3,"cop":4})", medmcqa()), "f line 1: question is number, not a text");
  EXPECT_EQ(refusal("\x1F\x8B\x08\x08", medmcqa()), "f: is compressed (gzip); unpack it with gunzip");
  EXPECT_EQ(refusal("{\"a\":\"\xE9\"}\n", medmcqa()), "f line 1 column 7: not valid UTF-8");
}

std::string medqa_row(const std::string& options, const std::string& rest) {
  return R"({"question":"Q","options":)" + options + rest + "}\n";
}

TEST_F(Readers, MedqaReadsEachFormOfOptions) {
  const std::string right = R"(,"answer":"y","answer_idx":"B")";
  for (const char* options : {R"({"A":"x","B":"y"})", R"([{"key":"A","value":"x"},{"key":"B","value":"y"}])",
                              R"(["x","y"])", R"({"A":"x","B":" y ","C":"z","D":"v","E":"w"})"}) {
    const auto items = read(medqa_row(options, right), read_medqa);
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0].right_option, 1u) << options;
    EXPECT_FALSE(items[0].reason) << options;
  }
}

TEST_F(Readers, MedqaTakesTextOrLetterAndRefusesContradictions) {
  const std::string options = R"({"A":"x","B":"y"})";
  const auto one = [&](const std::string& rest) { return read(medqa_row(options, rest), read_medqa)[0]; };
  EXPECT_EQ(one(R"(,"answer":"x")").right_option, 0u);
  EXPECT_EQ(one(R"(,"answer_idx":"B")").right_option, 1u);
  EXPECT_EQ(one(R"(,"answer":"x","answer_idx":"B")").reason, Reason::kContradiction);
  EXPECT_EQ(one(R"(,"answer":"v")").reason, Reason::kContradiction);
  EXPECT_EQ(one(R"(,"answer_idx":"C")").reason, Reason::kContradiction);
  EXPECT_EQ(one("").reason, Reason::kNoAnswer);
  EXPECT_EQ(one(R"(,"answer":null,"answer_idx":"")").reason, Reason::kNoAnswer);
}

TEST_F(Readers, MedqaRefusesOptionsThatAreNone) {
  EXPECT_EQ(refusal(medqa_row(R"({"A":"x","C":"y"})", ""), read_medqa),
            "f line 1: the options have the key \"C\" where B should be");
  EXPECT_EQ(refusal(medqa_row("3", ""), read_medqa),
            "f line 1: options is number, neither an object nor a list");
  EXPECT_EQ(refusal(medqa_row("[1]", ""), read_medqa), "f line 1: option 1 is number, not a text");
  EXPECT_EQ(refusal("{\"question\":\"Q\"}\n", read_medqa),
            "f line 1: the row has no options; is this the right source for the file?");
}

TEST_F(Readers, PubmedqaReadsRowsByPmid) {
  const auto items = read(
      "\xEF\xBB\xBF{\n  \"12\": {\"QUESTION\": \"Q \\\"}{\", \"CONTEXTS\": [\"a]\", \"b\"],\n"
      "    \"LABELS\": [\"L\", \"M\"], \"LONG_ANSWER\": \"E\", \"final_decision\": \"yes\"},\n"
      "  \"13\": {\"QUESTION\": \"R\", \"CONTEXTS\": [\"c\"]}\n}\n",
      read_pubmedqa);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].id, "12");
  EXPECT_EQ(items[0].line, 2);
  EXPECT_EQ(items[0].question, "Q \"}{");
  ASSERT_EQ(items[0].context.size(), 2u);
  EXPECT_EQ(items[0].context[1].label, "M");
  EXPECT_EQ(items[0].context[0].text, "a]");
  EXPECT_EQ(items[0].explanation, "E");
  EXPECT_EQ(items[0].answer_text, "yes");
  EXPECT_EQ(items[1].line, 4);
  EXPECT_EQ(items[1].context[0].label, "");
  EXPECT_TRUE(read(" {} ", read_pubmedqa).empty());
}

TEST_F(Readers, PubmedqaFaultsNameLineAndColumn) {
  const std::string row = R"({"QUESTION":"Q"})";
  EXPECT_EQ(refusal("", read_pubmedqa),
            "f line 1 column 1: the file ends at the file's begin: one JSON object, a row "
            "under each key, where `{` should stand; is it complete?");
  EXPECT_EQ(refusal("[1]", read_pubmedqa),
            "f line 1 column 1: no `{` at the file's begin: one JSON object, a row under each key");
  EXPECT_EQ(refusal("{\n\"1\":" + row + ",\n\"1\":" + row + "}", read_pubmedqa),
            "f line 3 column 1: the key \"1\" stands twice");
  EXPECT_EQ(refusal("{\"1\":" + row + "} x", read_pubmedqa),
            "f line 1 column 24: text behind the end of the object");
  EXPECT_EQ(refusal("{\"1\":" + row, read_pubmedqa),
            "f line 1 column 22: the file ends between two rows, where `,` should stand; is it complete?");
  EXPECT_EQ(refusal("{\"1\":{\"QUES", read_pubmedqa),
            "f line 1 column 12: the file ends inside a text; is it complete?");
  EXPECT_EQ(refusal("{\"1\":{", read_pubmedqa),
            "f line 1 column 7: the file ends inside a row; is it complete?");
  EXPECT_EQ(refusal("{\"1\":" + row + ",}", read_pubmedqa),
            "f line 1 column 23: no `\"` where a key should begin");
  EXPECT_EQ(refusal("{\"1\":3}", read_pubmedqa), "f line 1: a row is a JSON object, not number");
  // Column of the fault inside the row, not from the row's begin.
  EXPECT_TRUE(refusal("{\"1\":{\"a\":tru}}", read_pubmedqa).starts_with("f line 1 column 14: "))
      << refusal("{\"1\":{\"a\":tru}}", read_pubmedqa);
  EXPECT_EQ(
      refusal("{\"1\":{\"QUESTION\":\"Q\",\"CONTEXTS\":[\"a\"],\"LABELS\":[\"L\",\"M\"]}}", read_pubmedqa),
      "f line 1: LABELS and CONTEXTS differ in length");
}

}  // namespace
}  // namespace tandem
