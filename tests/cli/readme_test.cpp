// README's five commands work as they stand there.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/shell.hpp"

namespace tandem {
namespace {

// The indented lines of a section that begin with `tandem `.
std::vector<std::string> commands_of(const std::string& section) {
  std::vector<std::string> commands;
  bool inside = false;
  for (const std::string& line : support::lines_of(support::read_text(TANDEM_SOURCE_DIR "/README.md"))) {
    if (line.starts_with("## ")) inside = line == "## " + section;
    if (inside && line.starts_with("    tandem ")) commands.push_back(line.substr(4));
  }
  return commands;
}

TEST(Readme, ItsFiveCommandsWork) {
  const support::TempFolder folder;
  std::filesystem::create_symlink(TANDEM_SOURCE_DIR "/configs", folder / "configs");
  const std::string tandem = "export OMP_WAIT_POLICY=passive\ntandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n";
  const auto run = [&](const std::string& line) { return support::run_shell(folder, tandem + line); };
  const auto commands = commands_of("Your own model and data in five commands");
  ASSERT_EQ(commands.size(), 5u);
  for (const std::string& command : commands) {
    const auto result = run(command);
    ASSERT_EQ(result.code, 0) << command << "\n" << result.err;
    EXPECT_FALSE(result.out.empty()) << command;
  }
  const auto answer = run("tandem generate --model runs/own/merged --max-tokens 5 \"What do bees make?\"");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_FALSE(answer.out.empty());
}

}  // namespace
}  // namespace tandem
