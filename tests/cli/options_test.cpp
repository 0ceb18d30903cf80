#include "src/cli/options.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

Command command() {
  Command command;
  command.name = "cook";
  command.usage = "--out DIR [--fast] FILE";
  command.options = {{"out", "DIR", "where to", true},
                     {"fast", "", "no rest"},
                     {"add", "SPICE", "may be given again", false, "", true},
                     {"model", "DIR", "short", false, "model.path"}};
  command.keys = {"model.path", "lora.rank", "optim.clip", "overwrite"};
  command.positionals = {"FILE"};
  return command;
}

std::string error_of(const Words& words) {
  try {
    parse_arguments(command(), words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Options, AreKeysSwitchesValuesAndArguments) {
  const Arguments arguments = parse_arguments(command(), {"--lora.rank", "8", "--out=a b", "in.jsonl",
                                                          "--fast", "--overwrite", "--optim.clip", "-1"});
  EXPECT_EQ(arguments.get("out"), "a b");
  EXPECT_TRUE(arguments.has("fast"));
  EXPECT_EQ(arguments.positional, Words{"in.jsonl"});
  EXPECT_EQ(arguments.keys.at("lora.rank").value, "8");
  EXPECT_EQ(arguments.keys.at("overwrite").value, "true");
  EXPECT_EQ(arguments.keys.at("optim.clip").value, "-1");
  EXPECT_FALSE(arguments.help);
}

TEST(Options, ThatMayBeRepeatedKeepTheirOrder) {
  const Arguments arguments =
      parse_arguments(command(), {"--add", "b", "--out", "x", "f", "--add=a", "--add", "b"});
  EXPECT_EQ(arguments.lists.at("add"), (Words{"b", "a", "b"}));
  EXPECT_FALSE(arguments.has("add"));
  Command needed = command();
  needed.options.push_back({"pot", "NAME", "which one", true, "", true});
  EXPECT_THROW(parse_arguments(needed, {"--out", "x", "f"}), Error);
  EXPECT_NO_THROW(parse_arguments(needed, {"--out", "x", "f", "--pot", "p"}));
}

TEST(Options, SwitchesOfKeysTakeAValueToo) {
  for (const Words& words : {Words{"--overwrite=false"}, Words{"--overwrite", "false"}}) {
    Words all = {"--out", "x", "f"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_EQ(parse_arguments(command(), all).keys.at("overwrite").value, "false");
  }
}

TEST(Options, ShortNamesStandForKeys) {
  EXPECT_EQ(parse_arguments(command(), {"--model", "m", "--out", "x", "f"}).keys.at("model.path").value, "m");
  EXPECT_EQ(error_of({"--model", "m", "--model.path", "n", "--out", "x", "f"}),
            "cook: --model.path is given twice");
}

TEST(Options, ThatAreUnknownNameTheNearest) {
  EXPECT_EQ(error_of({"--lora.rnk", "8"}),
            "cook: unknown option `--lora.rnk`, the nearest one is `--lora.rank`");
  EXPECT_EQ(error_of({"--ouput", "8"}), "cook: unknown option `--ouput`, the nearest one is `--out`");
  EXPECT_EQ(error_of({"-x"}).substr(0, 26), "cook: unknown option `-x`,");
  // Abbreviations are not guessed: a later key could change what one means.
  EXPECT_EQ(error_of({"--lora", "8"}), "cook: unknown option `--lora`, the nearest one is `--lora.rank`");
  EXPECT_EQ(error_of({"--over"}).substr(0, 30), "cook: unknown option `--over`,");
}

TEST(Options, AreCheckedWhereTheyStand) {
  EXPECT_EQ(error_of({"--lora.rank", "x", "--out", "o", "f"}),
            "lora.rank = x: must be an integer from 1 to 4096");
  EXPECT_EQ(error_of({"--out", "o"}), "cook: FILE is missing: tandem cook --out DIR [--fast] FILE");
  EXPECT_EQ(error_of({"--out", "o", "f", "g"}),
            "cook: `g` is one argument too many: tandem cook --out DIR [--fast] FILE");
  EXPECT_EQ(error_of({"f"}), "cook: --out DIR is missing: where to");
  EXPECT_EQ(error_of({"--out", "", "f"}), "cook: --out has no value");
  EXPECT_EQ(error_of({"--out", "a", "--out", "b", "f"}), "cook: --out is given twice");
  EXPECT_EQ(error_of({"--out", "a", "--lora.rank", "1", "--lora.rank", "1", "f"}),
            "cook: --lora.rank is given twice");
  EXPECT_NE(error_of({"f", "--out"}).find("--out"), std::string::npos);
  EXPECT_NE(error_of({"--fast=3", "--out", "a", "f"}).find("--fast"), std::string::npos);
}

TEST(Options, HelpNeedsNothingElse) {
  EXPECT_TRUE(parse_arguments(command(), {"--help"}).help);
  EXPECT_TRUE(parse_arguments(command(), {"-h"}).help);
}

}  // namespace
}  // namespace tandem
