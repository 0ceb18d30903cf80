#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/base/error.hpp"
#include "src/cli/commands.hpp"
#include "src/cli/prepare_command.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

using support::run_shell;
using support::TempFolder;

PrepareOptions parsed(std::vector<std::string> words) {
  for (const Command& command : commands())
    if (command.name == "prepare") {
      words.insert(words.end(), {"--out", "o"});
      return prepare_options(parse_arguments(command, words));
    }
  throw std::runtime_error("no command prepare");
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    parsed(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(PrepareCommand, OptionsAreRead) {
  const PrepareOptions options =
      parsed({"--from", "medmcqa:a:b", "--from", "pubmedqa:c", "--held-out", "0.25", "--data.target",
              "explanation", "--cop-base", "0", "--overwrite"});
  ASSERT_EQ(options.sources.size(), 2u);
  EXPECT_EQ(options.sources[0].file, "a:b");
  EXPECT_EQ(options.sources[1].kind, SourceKind::kPubmedqa);
  EXPECT_EQ(options.held_out_share, 0.25);
  EXPECT_FALSE(options.answers);
  EXPECT_EQ(options.cop_base, 0);
  EXPECT_TRUE(options.overwrite);
  const PrepareOptions defaults = parsed({"--from", "medqa:a"});
  EXPECT_EQ(defaults.held_out_share, 0.02);
  EXPECT_TRUE(defaults.answers);
  EXPECT_FALSE(defaults.cop_base);
}

TEST(PrepareCommand, WrongValuesAreRefused) {
  const std::string from = "prepare: --from ";
  for (const char* word : {"medqa", "medqa:", "other:f", ":f", "MedQA:f"})
    EXPECT_EQ(refusal({"--from", word}), from + word + ": must be medmcqa:FILE, medqa:FILE or pubmedqa:FILE");
  for (const char* share : {"1", "-0.1", "nan", "x", "0.1x"})
    EXPECT_EQ(refusal({"--from", "medqa:f", "--held-out", share}),
              std::string("prepare: --held-out ") + share + ": must be a number from 0 to below 1");
  EXPECT_EQ(refusal({"--from", "medqa:f", "--data.target", "letter"}),
            "prepare: --data.target letter: must be explanation or explanation_or_answer");
  EXPECT_EQ(refusal({"--from", "medqa:f", "--cop-base", "2"}), "prepare: --cop-base 2: must be 0 or 1");
  EXPECT_TRUE(refusal({}).starts_with("prepare: --from SOURCE:FILE is missing"));
}

const char* const kTandem = "tandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n";

TEST(PrepareCommand, PrintsTableOrJson) {
  const TempFolder folder;
  const std::string line = "tandem prepare --from medqa:" TANDEM_SOURCE_DIR "/configs/tiny_medqa.jsonl ";
  const auto table = run_shell(folder, kTandem + line + "--held-out 0.3 --out a");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("\nrows                              7  100.0 %    7  100.0 %\n"),
            std::string::npos)
      << table.out;
  EXPECT_EQ(table.err, "");
  const auto as_json = run_shell(folder, kTandem + line + "--held-out 0.3 --out b --json");
  EXPECT_EQ(nlohmann::json::parse(as_json.out),
            nlohmann::json::parse(support::read_text(folder / "b/prepare.json")));
  EXPECT_EQ(support::read_text(folder / "a/train.jsonl"), support::read_text(folder / "b/train.jsonl"));
}

TEST(PrepareCommand, AFilesNameNeedNotBeUtf8) {
  const TempFolder folder;
  const auto result = run_shell(folder, std::string(kTandem) + "cp " TANDEM_SOURCE_DIR
                                                               "/configs/tiny_medqa.jsonl $'q\\xe9.jsonl'; "
                                                               "tandem prepare --from $'medqa:q\\xe9.jsonl' "
                                                               "--held-out 0.3 --out a");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(support::read_text(folder / "a/prepare.json"))["sources"][0]["file"],
            "q\xEF\xBF\xBD.jsonl");
}

TEST(PrepareCommand, SaysInOneLineWhatIsWrong) {
  const TempFolder folder;
  support::write_text(folder / "f.jsonl", "{\"question\": \"Q\", \n");
  const auto bad = run_shell(folder, std::string(kTandem) + "tandem prepare --from medqa:f.jsonl --out a");
  EXPECT_EQ(bad.code, 3);
  EXPECT_TRUE(bad.err.starts_with("tandem: f.jsonl line 1 column ")) << bad.err;
  EXPECT_EQ(support::lines_of(bad.err).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  const auto full =
      run_shell(folder, std::string(kTandem) + "tandem prepare --from medqa:" TANDEM_SOURCE_DIR
                                               "/configs/tiny_medqa.jsonl --held-out 0 --out a >/dev/full");
  EXPECT_EQ(full.code, 3);
  EXPECT_EQ(support::lines_of(full.err).size(), 1u) << full.err;
}

TEST(PrepareCommand, WarnsWhereNothingIsHeldOut) {
  const TempFolder folder;
  const auto result =
      run_shell(folder, std::string(kTandem) + "tandem prepare --from medqa:" TANDEM_SOURCE_DIR
                                               "/configs/tiny_medqa.jsonl --held-out 1e-9 --out a");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "warning: no row is held out: too few questions for a share of 1e-09\n");
}

}  // namespace
}  // namespace tandem
