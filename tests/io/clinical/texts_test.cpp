// What is done to texts before they are shown or compared: cleaning, folding, announced letters.
#include <gtest/gtest.h>

#include <string>

#include "io/clinical/answer_letter.hpp"
#include "io/clinical/clean_text.hpp"
#include "io/clinical/fold.hpp"
#include "src/base/sha256.hpp"

namespace tandem {
namespace {

using namespace std::string_literals;

TEST(CleanText, MakesOneSpaceOfARunAndTrimsLines) {
  EXPECT_EQ(clean_text("  a \t\u00A0 b\u3000c  "), "a b c");
  EXPECT_EQ(clean_text("a  \n  b"), "a\nb");
  EXPECT_EQ(clean_text(" \t\n "), "");
  EXPECT_EQ(clean_text(""), "");
}

TEST(CleanText, KeepsAtMostOneBlankLine) {
  EXPECT_EQ(clean_text("a\nb\n\nc\n\n\n \nd\n\n"), "a\nb\n\nc\n\nd");
  EXPECT_EQ(clean_text("a\r\nb\rc\vd\fe\u0085f\u2028g\u2029h"), "a\nb\nc\nd\ne\nf\ng\nh");
  EXPECT_EQ(clean_text("a\r\n\r\nb\n\rc"), "a\n\nb\n\nc");
}

TEST(CleanText, DropsControlCharactersAndInvisibleSigns) {
  EXPECT_EQ(clean_text("a\0b\x01\x1F\x7F\u009F"s + "c"), "abc");
  EXPECT_EQ(clean_text("\uFEFFam\u00ADylase\u200B \u202Ax\u202C"), "amylase x");
  EXPECT_EQ(clean_text("a\u200Cb\u200Dc\uFFFD"), "a\u200Cb\u200Dc\uFFFD")
      << "joiners and replacement characters stay";
}

TEST(CleanText, ComposesCharacters) {
  EXPECT_EQ(clean_text("e\u0301"), "\u00E9");
  EXPECT_EQ(clean_text("Angstro\u0308m \u212B"), "Angstr\u00F6m \u00C5");
}

TEST(FoldText, IgnoresCaseWhiteSpacePunctuationSignsAndAccents) {
  EXPECT_EQ(fold_text("Guillain-Barr\u00E9: is it \u201Ctrue\u201D?"), "guillainbarreisittrue");
  EXPECT_EQ(fold_text("GUILLAIN BARRE\u0301 IS IT TRUE"), "guillainbarreisittrue");
  EXPECT_EQ(fold_text("\uFF21\uFB01\u00B2 \u00BD"), "afi212") << "compatibility forms";
  EXPECT_EQ(fold_text("Stra\u00DFe \u0391\u03C3\u03C2"), "strasse\u03B1\u03C3\u03C3");
  EXPECT_EQ(fold_text("_+<>=~^|$`.,;!? \t\n\u2192\u00B0"), "");
}

TEST(FoldText, OfFoldedTextChangesNothing) {
  for (const char* text :
       {"Guillain-Barr\u00E9", "\u0130\u0132\uFB03", "\u1E9E \u2168 \u3392", "\u00B5g \u2126"}) {
    const std::string once = fold_text(text);
    EXPECT_EQ(fold_text(once), once) << text;
  }
}

TEST(FoldAnswer, KeepsSigns) {
  EXPECT_EQ(fold_answer("> 5 mg."), ">5mg");
  EXPECT_NE(fold_answer(">5"), fold_answer("<5"));
  EXPECT_NE(fold_answer("\u2193 \u2191"), fold_answer("\u2191 \u2193"));
}

TEST(Fold, SplitPointIsTheBeginningOfSha256) {
  // sha256("abc") begins with ba7816bf8f01cfea (FIPS 180-4).
  EXPECT_EQ(key_of("abc").high, 0xba7816bf8f01cfeaull);
  EXPECT_EQ(key_of("abc").low, 0x414140de5dae2223ull);
  EXPECT_EQ(split_point({0, 0}), 0);
  EXPECT_EQ(split_point({1ull << 63, 0}), 0.5);
  EXPECT_LT(split_point({~0ull, ~0ull}), 1.0);
}

// What is left of the explanation, and the option; "-" where none is announced.
std::string announced(const std::string& text) {
  const auto found = announced_option(text);
  if (!found) return "-";
  return std::string(1, static_cast<char>('A' + found->option)) + "|" + text.substr(found->length);
}

TEST(AnnouncedOption, IsFoundInTheFormsThatOccur) {
  EXPECT_EQ(announced("Ans. is 'd' i.e., Miotic"), "D|Miotic");
  EXPECT_EQ(announced("Ans: B. >81 dB"), "B|>81 dB");
  EXPECT_EQ(announced("Answer- D. IL2RG"), "D|IL2RG");
  EXPECT_EQ(announced("Answer-c- Pyruvate"), "C|Pyruvate");
  EXPECT_EQ(announced("Ans.b). Variance"), "B|Variance");
  EXPECT_EQ(announced("Ans. D (Superior"), "D|(Superior");
  EXPECT_EQ(announced("Answer- a (efficacy)"), "A|(efficacy)");
  EXPECT_EQ(announced("Ans: D .Postsynaptic"), "D|Postsynaptic");
  EXPECT_EQ(announced("Answer- A i.e. As early"), "A|As early");
  EXPECT_EQ(announced("Answer- BRadioactive"), "B|Radioactive");
  EXPECT_EQ(announced("The correct answer is (C) Foo"), "C|Foo");
  EXPECT_EQ(announced("Answer is option B."), "B|");
  EXPECT_EQ(announced("Answer- C"), "C|");
  EXPECT_EQ(announced("ANS. \u2018c\u2019 Foo"), "C|Foo");
  EXPECT_EQ(announced("Ans. C. -2"), "C|-2") << "a minus sign is no sign of the announcement";
}

TEST(AnnouncedOption, IsNotSeenInOtherTexts) {
  for (const char* text : {"",
                           "a",
                           "Ans",
                           "Ans.",
                           "Ans. Mullerian agenesis",
                           "Ans. ACh is released",
                           "Answer- CT scan",
                           "Answers vary",
                           "Anseriform",
                           "Ans. a patient with",
                           "Ans. A patient with",
                           "Ans. B-cell",
                           "Ans. C3 deficiency",
                           "Ans. All",
                           "Ans. A, B and C",
                           "Ans. is 'a' & 'b'",
                           "Ans. \"c",
                           "Answer- DB, D, C, A",
                           "A. Dermatitis",
                           "B12 is"})
    EXPECT_EQ(announced(text), "-") << text;
}

}  // namespace
}  // namespace tandem
