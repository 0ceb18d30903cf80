// Each command's example works as its help prints it.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "src/cli/commands.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

TEST(Examples, OfEveryCommandWork) {
  const support::TempFolder folder;
  std::filesystem::create_symlink(TANDEM_SOURCE_DIR "/configs", folder / "configs");
  const std::string tandem = "tandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n";
  const auto run = [&](const std::string& line) {
    return support::run_shell(folder, "export OMP_WAIT_POLICY=passive\n" + tandem + line);
  };

  // What the quickstart leaves and the examples use.
  const auto model = run("tandem init-model --preset tiny --seed 1 --out runs/quickstart/model");
  ASSERT_EQ(model.code, 0) << model.err;
  const auto train =
      run("tandem train --config configs/tiny.cfg --model runs/quickstart/model --train.updates 40 --run.out "
          "runs/quickstart/run");
  ASSERT_EQ(train.code, 0) << train.err;

  for (const Command& command : commands()) {
    const auto result = run(command.example);
    EXPECT_EQ(result.code, 0) << command.example << "\n" << result.err;
    EXPECT_FALSE(result.out.empty()) << command.example;
  }
}

}  // namespace
}  // namespace tandem
