#include "src/train/run_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "src/base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, TakesANewOrEmptyFolder) {
  const support::TempFolder temp;
  const RunFolder absent{temp.path() / "a" / "b"}, empty{temp.path() / "c"};
  fs::create_directory(empty.path);
  check_run_folder(absent, false);
  check_run_folder(empty, false);
  prepare_run_folder(absent);
  EXPECT_TRUE(fs::is_directory(absent.path));
}

TEST(RunFolder, RefusesAnEarlierRunUnlessAskedAndThenRemovesOnlyThat) {
  const support::TempFolder temp;
  const RunFolder folder{temp.path()};
  std::ofstream(folder.trajectory()) << "x";
  std::ofstream(temp.path() / "notes.txt") << "mine";
  fs::create_directories(folder.adapter());
  EXPECT_THROW(check_run_folder(folder, false), Error);
  check_run_folder(folder, true);
  prepare_run_folder(folder);
  EXPECT_FALSE(fs::exists(folder.trajectory()));
  EXPECT_FALSE(fs::exists(folder.adapter()));
  EXPECT_TRUE(fs::exists(temp.path() / "notes.txt"));
}

TEST(RunFolder, NeverTouchesAFolderThatHoldsNoRun) {
  const support::TempFolder temp;
  std::ofstream(temp.path() / "thesis.tex") << "mine";
  EXPECT_THROW(check_run_folder({temp.path()}, true), Error);
  EXPECT_THROW(check_run_folder({temp.path() / "thesis.tex"}, true), Error);
}

}  // namespace
}  // namespace tandem
