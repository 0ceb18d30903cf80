// The program as a user meets it: what it prints where, and its exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/cli/commands.hpp"
#include "src/cli/cpu_check.hpp"
#include "src/cli/help.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

using support::lines_of;
using support::ShellResult;
using support::TempFolder;
using support::write_text;

// `tandem` in the line is the program under test.
ShellResult shell(const TempFolder& folder, const std::string& line) {
  return support::run_shell(folder, "tandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n" + line);
}

ShellResult shell(const std::string& line) { return shell(TempFolder(), line); }

TEST(Program, HelpFitsAScreen) {
  const ShellResult result = shell("tandem --help");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  const auto lines = lines_of(result.out);
  EXPECT_LE(lines.size(), 24u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  for (const Command& command : commands())
    EXPECT_NE(result.out.find("  " + command.name), std::string::npos);
}

TEST(Program, EachCommandHelpsWithAnExampleAndUnits) {
  for (const Command& command : commands()) {
    const ShellResult result = shell("tandem " + command.name + " --help");
    EXPECT_EQ(result.code, 0) << command.name;
    EXPECT_EQ(result.out, command_help(command));
    EXPECT_NE(result.out.find("\nexample:\n  " + command.example + "\n"), std::string::npos);
    for (const OptionHelp& option : command.options)
      EXPECT_NE(result.out.find("--" + option.name + " "), std::string::npos) << option.name;
    for (const std::string& key : command.keys)
      EXPECT_NE(result.out.find("--" + key + " "), std::string::npos) << key;
    EXPECT_EQ(shell("tandem help " + command.name).out, result.out);
  }
}

TEST(Program, WithoutACommandShowsItsHelpAsAnError) {
  const ShellResult result = shell("tandem");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, program_help(commands()));
}

TEST(Program, RefusesInOneLineNamingTheNearest) {
  const auto error = [](const std::string& words) {
    const ShellResult result = shell("tandem " + words);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_of(result.err).size(), 1u);
    return result.err;
  };
  EXPECT_EQ(error("spce"), "tandem: unknown command `spce`, the nearest one is `spec`\n");
  EXPECT_EQ(error("--config x"), "tandem: `--config`: the command comes first: tandem COMMAND [options]\n");
  EXPECT_EQ(error("spec --lora.rnk 4"),
            "tandem: spec: unknown option `--lora.rnk`, the nearest one is `--lora.rank`\n");
  EXPECT_EQ(error("--version --jsn"),
            "tandem: --version: unknown option `--jsn`, the only one is `--json`\n");
  EXPECT_EQ(error("check --seconds 0"), "tandem: check: --seconds 0: must be 1 or more\n");
  EXPECT_EQ(error("check --seconds 3"), "tandem: model.path: is not given (--model DIR)\n");
  EXPECT_EQ(error("spec"), "tandem: model.path: is not given (--model DIR)\n");
  EXPECT_EQ(error("tokenize"),
            "tandem: tokenize: --model DIR is missing: folder that holds tokenizer.json\n");
}

TEST(Program, RenderTakesOneModeAtATimeAndNoColourIntoAFile) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", R"({"ids":[104,105],"targets":[0,1]})");
  EXPECT_EQ(shell(folder, "tandem render --model . --show 1 --digest x.h5 d.jsonl").err,
            "tandem: render: --digest, --against and --show exclude one another\n");
  EXPECT_EQ(shell(folder, "tandem render --model . --show 0 d.jsonl").code, 2);
  EXPECT_EQ(shell(folder, "tandem render --model . --held-out d.jsonl d.jsonl").code, 2);
  EXPECT_EQ(shell(folder, "tandem render --model . --with-ids d.jsonl").code, 2);
  const ShellResult shown = shell(folder, "tandem render --model . --show 1 d.jsonl");
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(lines_of(shown.out).back(), "<104>\u27E6<105>\u27E7");
  EXPECT_EQ(
      shell(folder,
            "tandem render --model . --digest x.h5 d.jsonl && tandem render --model . --against x.h5 d.jsonl")
          .code,
      0);
}

TEST(Program, ErrorsShowControlCharactersAndAreNeverCutByThem) {
  const TempFolder folder;
  write_text(folder / "a.cfg", std::string("lora.rank = 4") + '\0' + "x\x1b[31m\n");
  const ShellResult result = shell(folder, "tandem spec --config a.cfg");
  EXPECT_EQ(result.err, "tandem: a.cfg:1: lora.rank = 4\\x00x\\x1b[31m: must be an integer from 1 to 4096\n");
}

// The number of a closed stream would be given to the next file opened, and that would get the stream's text.
TEST(Program, AClosedStandardStreamHarmsNoFile) {
  const TempFolder folder;
  const ShellResult result =
      shell(folder,
            "tandem init-model --out m 2>&-\n"
            "tandem init-model --out n <&- 2>&- || exit\n"
            "tandem init-model --out o <&- >&- 2>&-; echo $?\n"
            "cmp m/model.safetensors n/model.safetensors && cmp m/config.json o/config.json\n"
            "tandem train 2>&- >&-; tandem train 0<&-");
  EXPECT_EQ(lines_of(result.out).back(), "3") << result.err;
  EXPECT_EQ(lines_of(result.err).back(), "tandem: model.path: is not given (--model DIR)");
}

TEST(Program, AFileLongerThanAllowedIsAnInputError) {
  const TempFolder folder;
  const ShellResult result = shell(folder, "ulimit -f 40; tandem init-model --out m");
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_NE(result.err.find("File too large"), std::string::npos) << result.err;
}

TEST(Program, PipesAndDevicesAreNoDataFiles) {
  const TempFolder folder;
  const ShellResult result = shell(folder,
                                   "mkfifo pipe; tandem init-model --out m >/dev/null\n"
                                   "timeout 20 \"" TANDEM_PROGRAM
                                   "\" spec --model m --data pipe\n"
                                   "timeout 20 \"" TANDEM_PROGRAM
                                   "\" spec --model m --data /dev/zero\n"
                                   "timeout 20 \"" TANDEM_PROGRAM "\" spec --model m --data m");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err,
            "tandem: pipe: is no regular file\ntandem: /dev/zero: is no regular file\n"
            "tandem: m: is a folder, not a file\n");
}

TEST(Program, MissingFilesAreInputErrors) {
  const ShellResult result = shell("tandem spec --config no.cfg");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err, "tandem: no.cfg: cannot be opened: No such file or directory\n");
}

TEST(Program, VersionNamesTheBuildAndItsLibraries) {
  EXPECT_EQ(shell("tandem --version").out.find("tandem "), 0u);
  const auto json = nlohmann::json::parse(shell("tandem --version --json").out);
  for (const char* name :
       {"version", "compiler", "build_type", "arch", "instruction_set", "onednn", "hdf5", "mpi"})
    EXPECT_FALSE(json.at(name).get<std::string>().empty()) << name;
  EXPECT_TRUE(json.contains("git"));
}

TEST(Program, OutputThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(shell("tandem --help >/dev/full").code, 3);
  EXPECT_EQ(shell("tandem --help >/dev/full").err,
            "tandem: standard output: cannot be written: No space left on device\n");
  const ShellResult closed = shell("tandem --help >&-");
  EXPECT_EQ(closed.code, 3);
  EXPECT_EQ(closed.err, "tandem: standard output: cannot be written: Bad file descriptor\n");
  // The reader is gone before the program starts.
  const ShellResult pipe = shell("mkfifo p; exec 9<>p; exec 8>p 9>&-; tandem --help >&8");
  EXPECT_EQ(pipe.code, 3);
  EXPECT_EQ(pipe.err, "tandem: standard output: cannot be written: Broken pipe\n");
}

// The same words on every rank fail alike: one line is enough.
TEST(Program, OneOfManyRanksReportsAWrongOption) {
  const std::string ranks =
      "export OMPI_COMM_WORLD_SIZE=3; for r in 0 1 2; do OMPI_COMM_WORLD_RANK=$r tandem ";
  const ShellResult options = shell(ranks + "spec --lora.rank 0; done");
  EXPECT_EQ(lines_of(options.err).size(), 1u) << options.err;
  EXPECT_EQ(options.err.find("[rank 0/3 "), 0u);
  // A file may differ between nodes, so each rank speaks for its own.
  EXPECT_EQ(lines_of(shell(ranks + "spec --config no.cfg; done").err).size(), 3u);
}

TEST(Spec, PrintsTheCanonicalText) {
  const TempFolder folder;
  write_text(folder / "config.json", "{}");
  write_text(folder / "rows.jsonl", "x");
  write_text(folder / "a.cfg",
             "model.path = .\ndata.train = rows.jsonl\ntrain.updates = 100\nlora.targets = v,q\n");
  const ShellResult result =
      shell(folder, "cd /; tandem spec --config \"$OLDPWD/a.cfg\" --lora.rank 4 --seed 9");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nlora.rank = 4\n"), std::string::npos);
  EXPECT_NE(result.out.find("\nlora.targets = \"q,v\"\n"), std::string::npos);
  EXPECT_NE(result.out.find("\noptim.warmup = 3\n"), std::string::npos);
  EXPECT_NE(result.out.find("\neval.every = 3\n"), std::string::npos);
  EXPECT_NE(result.out.find("\nseed.adapter = 9\nseed.dropout = 9\nseed.order = 9\n"), std::string::npos);
  // sha256sum of "x".
  EXPECT_NE(result.out.find(
                "\ndata.train = \"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"\n"),
            std::string::npos);
}

TEST(Spec, ShowAllIsAConfigurationFileAndSaysWhereValuesComeFrom) {
  const TempFolder folder;
  write_text(folder / "a.cfg", "\nlora.alpha = 3\ndata.train = \"rows #1.jsonl\"\n");
  const ShellResult result = shell(folder, "tandem spec --config a.cfg --seed 5 --show-all");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nlora.alpha = 3.0  # a.cfg:2; default 32.0; a number > 0\n"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("\nseed = 5  # command line; default 0; "), std::string::npos);
  EXPECT_NE(result.out.find("\nlora.rank = 16  # default; an integer from 1 to 4096\n"), std::string::npos);
  EXPECT_NE(result.out.find("\n# optim.warmup: 3 % of train.updates, rounded; default; "), std::string::npos);
  const auto values = [](const std::string& text) {
    std::string all;
    for (const std::string& line : lines_of(text))
      if (!line.starts_with("#")) all += line.substr(0, line.find("  # ")) + "\n";
    return all;
  };
  std::filesystem::create_directory(folder / "elsewhere");
  write_text(folder / "elsewhere" / "b.cfg", result.out);
  const ShellResult again = shell(folder, "tandem spec --config elsewhere/b.cfg --show-all");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(values(again.out), values(result.out));
}

TEST(Cpu, ChecksOnlyWhatTheBuildUses) {
  EXPECT_EQ(missing_cpu_feature(0), nullptr);
  EXPECT_EQ(missing_cpu_feature(kBuildFeatures), nullptr)
      << "this test runs, so the CPU has what the build uses";
}

}  // namespace
}  // namespace tandem
