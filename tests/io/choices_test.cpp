#include "io/choices.hpp"

#include <gtest/gtest.h>

#include "io/text/own_tokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

class Choices : public testing::Test {
 protected:
  void SetUp() override { write_byte_level_tokenizer(folder_.path()); }
  ChoiceSet load(const std::string& rows) {
    support::write_text(folder_ / "rows.jsonl", rows);
    return load_choices(folder_ / "rows.jsonl", folder_.path(), options_);
  }
  std::string refusal(const std::string& rows) {
    try {
      load(rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      std::string text = error.what();
      const std::string name = (folder_ / "rows.jsonl").string();
      return text.starts_with(name) ? text.substr(name.size()) : text;
    }
    return "no error";
  }

  support::TempFolder folder_;
  RenderOptions options_;
};

TEST_F(Choices, EachOptionIsASampleWhoseOwnTokensAreScored) {
  const ChoiceSet set = load(
      "{\"question\":\"Why?\",\"choices\":[\"So.\",\"No\"],\"answer\":1,\"other\":3}\n\n"
      "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Why?\"}],"
      "\"choices\":[\"a\",\"b\",\"c\"],\"answer\":0}\n"
      "{\"prompt\":\"Why?\",\"choices\":[\"So.\",\"No\"],\"answer\":0}\n");
  ASSERT_EQ(set.questions.size(), 3u);
  ASSERT_EQ(set.samples.size(), 7);
  EXPECT_EQ(set.questions[1].line, 3);
  EXPECT_EQ(set.questions[1].first, 2);
  EXPECT_EQ(set.questions[1].n_options, 3);
  EXPECT_EQ(set.questions[0].answer, 1);
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  const auto scored = [&](std::int64_t i) {
    std::vector<std::int32_t> ids;
    for (std::size_t p = 0; p < set.samples.ids(i).size(); ++p)
      if (set.samples.targets(i)[p]) ids.push_back(set.samples.ids(i)[p]);
    return tokenizer.decode(ids);
  };
  EXPECT_EQ(scored(0), "So.");
  EXPECT_EQ(scored(1), "No");
  EXPECT_EQ(scored(4), "c");
  // As training renders the conversation.
  std::string whole;
  for (const std::int32_t id : set.samples.ids(0)) whole += tokenizer.bytes(id);
  EXPECT_EQ(
      whole,
      "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo.<|im_end|>\n");
  EXPECT_EQ(set.samples.digest(0), set.samples.digest(5)) << "question and prompt are the same";
}

TEST_F(Choices, QuestionsThatDoNotFitAreLeftOutWhole) {
  options_.max_tokens = 60;
  const std::string kept = "{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n";
  const ChoiceSet set = load(kept + "{\"question\":\"Why?\",\"choices\":[\"a\",\"" + std::string(60, 'b') +
                             "\"],\"answer\":0}\n" + kept);
  EXPECT_EQ(set.too_long, 1);
  EXPECT_EQ(set.questions.size(), 2u);
  EXPECT_EQ(set.samples.size(), 4);
  options_.max_tokens = 5;
  EXPECT_EQ(refusal(kept), ": no question left (1 longer than data.max_tokens = 5)");
}

TEST_F(Choices, BadRowsAreRefusedWithTheirLine) {
  const std::string good = "{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n";
  EXPECT_EQ(refusal(good + "{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"],\"answer\":2}"),
            " line 2: answer = 2 is no integer from 0 to 1");
  EXPECT_EQ(refusal("{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"],\"answer\":\"a\"}"),
            " line 1: answer = \"a\" is no integer from 0 to 1");
  EXPECT_EQ(refusal("{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"]}"),
            " line 1: answer = null is no integer from 0 to 1");
  EXPECT_EQ(refusal("{\"question\":\"Why?\",\"choices\":[\"a\"],\"answer\":0}"),
            " line 1: choices is no list of two or more texts");
  EXPECT_EQ(refusal("{\"question\":\"Why?\",\"choices\":[\"a\",\"\"],\"answer\":0}"),
            " line 1: choices[1] is no text, or empty");
  EXPECT_EQ(refusal(good + "{\"question\":\"Why?\",\"choices\":[\"no\",\"a\",\"no\"],\"answer\":0}"),
            " line 2: choices[0] and choices[2] are the same text; leave the row out");
  EXPECT_EQ(refusal("{\"question\":1,\"choices\":[\"a\",\"b\"],\"answer\":0}"),
            " line 1: question is number, not a text");
  EXPECT_EQ(refusal("{\"ids\":[1],\"choices\":[\"a\",\"b\"],\"answer\":0}"),
            " line 1: a question with choices is a text, not ids");
  EXPECT_NE(refusal("{\"choices\":[\"a\",\"b\"],\"answer\":0}").find(" line 1: a row has either messages"),
            std::string::npos);
  EXPECT_NE(refusal("{\"question\":").find(" line 1 column "), std::string::npos);
  options_.vocab_size = 100;
  EXPECT_NE(refusal(good).find("the model's vocabulary has 100 entries"), std::string::npos);
}

}  // namespace
}  // namespace tandem
