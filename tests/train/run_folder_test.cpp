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
  const RunFolderLock lock(absent, false);
  prepare_run_folder(absent, lock);
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
  const RunFolderLock lock(folder, true);
  prepare_run_folder(folder, lock);
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

TEST(RunFolder, KeepsItsInputs) {
  const support::TempFolder temp;
  const RunFolder folder{temp.path() / "run"};
  fs::create_directories(folder.adapter());
  fs::create_directory_symlink(folder.path, temp.path() / "link");
  RunSpec spec;
  spec.train.path = temp.path() / "run" / "mine.jsonl";  // stays where it is
  spec.model.path = temp.path() / "model";
  check_inputs_apart(folder, spec);
  for (const fs::path& place : {folder.adapter(), temp.path() / "link" / "adapter", folder.log()}) {
    spec.lora_init.path = place;
    try {
      check_inputs_apart(folder, spec);
      ADD_FAILURE() << place << " would be replaced";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("lora.init: "), std::string::npos) << error.what();
    }
  }
}

TEST(RunFolder, OfTwoJobsStartedTogetherOneGetsIt) {
  const support::TempFolder temp;
  const RunFolder folder{temp.path() / "run"};
  check_run_folder(folder, false);
  check_run_folder(folder, false);
  {
    const RunFolderLock first(folder, false);
    prepare_run_folder(folder, first);
    EXPECT_THROW(RunFolderLock(folder, false), Error);
    EXPECT_THROW(RunFolderLock(folder, true), Error) << "not even to overwrite it";
    std::ofstream(folder.trajectory()) << "x";
  }
  EXPECT_THROW(RunFolderLock(folder, false), Error) << "the first one has ended there meanwhile";
  const RunFolderLock again(folder, true);
}

TEST(RunFolder, ThatCannotBeWrittenIsRefusedBeforeAnythingIsDone) {
  const support::TempFolder temp;
  std::ofstream(temp.path() / "file") << "x";
  fs::create_directory_symlink(temp.path() / "nowhere", temp.path() / "dangling");
  EXPECT_THROW(check_run_folder({temp.path() / "file" / "run"}, false), Error);
  EXPECT_THROW(check_run_folder({temp.path() / "dangling"}, false), Error);
  EXPECT_FALSE(fs::exists(temp.path() / "nowhere"));
}

}  // namespace
}  // namespace tandem
