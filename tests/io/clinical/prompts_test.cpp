#include "io/clinical/prompts.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

std::string refusal(const std::string& text) {
  try {
    PromptText(text, "p.txt", {"answer", "question"});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Prompts, BuiltInAreThoseOfConfigs) {
  for (const char* file : {"choice.txt", "abstract.txt", "answer.txt", "conclusion.txt"})
    EXPECT_EQ(built_in_prompt(file),
              support::read_text(std::string(TANDEM_SOURCE_DIR "/configs/prompts/") + file));
}

TEST(Prompts, PlaceholdersAreFilledOnce) {
  const PromptText prompt("{{{question}}} {answer}{question}", "p.txt", {"answer", "question"});
  EXPECT_EQ(prompt.fill({{"answer", "{question}"}, {"question", "q"}}), "{q} {question}q");
}

TEST(Prompts, ASentenceEndsOnce) {
  const PromptText prompt("It is: {answer}. So.", "p.txt", {"answer"});
  EXPECT_EQ(prompt.fill({{"answer", "aspirin"}}), "It is: aspirin. So.");
  EXPECT_EQ(prompt.fill({{"answer", "Short lip."}}), "It is: Short lip. So.");
  EXPECT_EQ(prompt.fill({{"answer", "\"Why?\""}}), "It is: \"Why?\" So.");
  EXPECT_EQ(prompt.fill({{"answer", "f(x)"}}), "It is: f(x). So.");
}

TEST(Prompts, FaultsNameFileLineAndColumn) {
  EXPECT_EQ(refusal("{answer}\n a {quest}"),
            "p.txt line 2 column 4: {quest} is no placeholder here; there are {answer}, {question}");
  EXPECT_EQ(refusal("{answer} {question"),
            "p.txt line 1 column 10: a brace without its other half; write {{ or }} for a brace");
  EXPECT_EQ(refusal("{answer} }"),
            "p.txt line 1 column 10: a brace without its other half; write {{ or }} for a brace");
  EXPECT_EQ(refusal("{answer}"), "p.txt: the placeholder {question} is missing");
}

TEST(Prompts, OfAFolderReplaceTheBuiltInOnes) {
  const support::TempFolder folder;
  EXPECT_THROW(read_prompts(folder.path()), Error);
  support::write_text(folder / "answer.txt", "{answer}!\r\n");
  const Prompts prompts = read_prompts(folder.path());
  EXPECT_EQ(prompts.answer.fill({{"answer", "a"}}), "a!");
  EXPECT_EQ(prompts.conclusion.fill({{"answer", "yes"}}), "The answer to the question is: yes.");
}

}  // namespace
}  // namespace tandem
