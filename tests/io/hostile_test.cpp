// Reading what others give: one line for each file, whatever it holds, in bounded time and memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>

#include "io/contained.hpp"
#include "io/trajectory_reader.hpp"
#include "io/trajectory_validation.hpp"
#include "src/base/error.hpp"
#include "tests/io/whole_trajectory.hpp"
#include "tests/support/data.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::TempFolder;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Far below what the files announce (8 GiB and more). Measured: 161 MB, of the million rows.
constexpr long kMostKilobytes = 700'000;
// Far below the limit of a child that loops (30 s): nothing here loops. Measured: 0.6 s.
constexpr double kMostSeconds = 20.0;

bool has_h5py() { return std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") == 0; }

struct Outcome {
  bool read = false, valid = false;
  std::string line;  // of the refusal or the first problem
};

// Reads and validates; holds what they say to one line each that names the file.
Outcome outcome_of(const fs::path& file) {
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  try {
    read_untrusted_trajectory(file);
    outcome.read = true;
  } catch (const Error& error) {
    outcome.line = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << outcome.line;
    EXPECT_EQ(outcome.line.find('\n'), std::string::npos) << outcome.line;
    EXPECT_NE(outcome.line.find(file.filename().string()), std::string::npos) << outcome.line;
  }
  const Validity validity =
      validate_trajectory(file, [](const auto&, const auto&) { return format::RunPlan{}; });
  outcome.valid = validity.valid();
  for (const auto& problem : validity.problems) {
    EXPECT_EQ(problem.line().find('\n'), std::string::npos) << problem.line();
    EXPECT_LT(problem.line().size(), 1000u) << problem.line();
    if (outcome.line.empty()) outcome.line = problem.line();
  }
  EXPECT_TRUE(outcome.read || !outcome.valid) << file << " is called valid, but: " << outcome.line;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), kMostSeconds) << file;
  return outcome;
}

void expect_bounded_memory() {
  rusage children{}, self{};
  getrusage(RUSAGE_CHILDREN, &children);
  getrusage(RUSAGE_SELF, &self);
  if (kSanitized) return;  // they keep what is freed
  EXPECT_LT(children.ru_maxrss, kMostKilobytes);
  EXPECT_LT(self.ru_maxrss, kMostKilobytes);
}

TEST(Hostile, EveryFileEndsInOneLineInBoundedTimeAndMemory) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  fs::create_directory(folder / "made");
  // A valid copy beside them: each file is judged for its own fault.
  const auto damaged = support::data_path("hostile/hdf5");
  const auto result = support::run_shell(folder, "/usr/bin/python3 '" TANDEM_SOURCE_DIR
                                                 "/tests/io/hostile_files.py' native.h5 made '" +
                                                     (damaged ? damaged->string() : "") + "'");
  ASSERT_EQ(result.code, 0) << result.err;
  fs::copy(folder / "native.snapshots", folder / "made/native.snapshots");
  // Faults of places that are not looked at, or that leave a file as good as it was.
  const std::set<std::string> harmless = {"10,000 groups deep", "a group that holds itself",
                                          "an attribute of 3,000 texts", "text 1048576", "heap text 1"};
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "made")) {
    if (!entry.is_regular_file()) continue;
    const Outcome outcome = outcome_of(entry.path());
    if (!harmless.contains(entry.path().stem())) {
      EXPECT_FALSE(outcome.valid) << entry.path();
    }
    ++files;
  }
  EXPECT_EQ(std::to_string(files) + "\n", result.out);
  EXPECT_GT(files, 230);
  expect_bounded_memory();
}

TEST(Hostile, FilesOfOthersEndInOneLine) {
  const auto damaged = support::data_path("hostile/hdf5");
  if (!damaged) GTEST_SKIP() << support::kNoData;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(*damaged))
    if (entry.path().extension().string().starts_with(".h")) {
      const Outcome outcome = outcome_of(entry.path());
      EXPECT_FALSE(outcome.read || outcome.valid) << entry.path();
      ++files;
    }
  EXPECT_GE(files, 10);
  expect_bounded_memory();
}

TEST(Hostile, AFileCutAtAnyLengthIsRefused) {
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  const std::string bytes = support::read_text(folder / "native.h5");
  const std::size_t step = bytes.size() / 150;
  for (std::size_t kept = 0; kept < bytes.size(); kept += kept < 64 ? 8 : step) {
    support::write_text(folder / "cut.h5", bytes.substr(0, kept));
    const Outcome outcome = outcome_of(folder / "cut.h5");
    EXPECT_FALSE(outcome.read || outcome.valid) << kept << " bytes";
  }
}

// A byte in each of the file's parts: metadata and values.
TEST(Hostile, ChangedBytesEndInALineOrInNumbers) {
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  const std::string bytes = support::read_text(folder / "native.h5");
  std::mt19937_64 random(17);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    // Metadata is what crashes readers, and most of it lies where bytes are not 0.
    for (int flips = 0; flips < 4; ++flips) {
      std::size_t at = random() % damaged.size();
      while (damaged[at] == 0) at = (at + 1) % damaged.size();
      damaged[at] = static_cast<char>(random());
    }
    support::write_text(folder / "damaged.h5", damaged);
    refused += !outcome_of(folder / "damaged.h5").read;
  }
  EXPECT_GT(refused, 20);
  expect_bounded_memory();
}

std::string refusal_of(const std::function<std::string()>& work, const ContainedLimits& limits = {}) {
  try {
    return "done: " + run_contained("/some/file", work, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
}

TEST(Contained, HandsBackTheTextOrTheError) {
  const std::string text(1'000'000, 'x');
  EXPECT_EQ(refusal_of([&] { return text; }), "done: " + text);
  EXPECT_EQ(refusal_of([] { return std::string(); }), "done: ");
  EXPECT_EQ(refusal_of([]() -> std::string { throw Error(ErrorKind::kInput, "what is wrong"); }),
            "what is wrong");
}

TEST(Contained, EndsWhatCrashesLoopsOrAsksForMemory) {
  EXPECT_EQ(refusal_of([]() -> std::string {
              std::raise(SIGKILL);
              return "";
            }),
            "/some/file: is a damaged HDF5 file (reading it made the HDF5 library crash)");
  EXPECT_EQ(refusal_of(
                []() -> std::string {
                  for (volatile bool going = true; going;) {
                  }
                  return "";
                },
                {.seconds = 1}),
            "/some/file: is a damaged HDF5 file (reading it takes too long)");
  if (kSanitized) GTEST_SKIP() << "the sanitizers' address space cannot be bounded";
  EXPECT_EQ(refusal_of([] { return std::string(std::size_t{2} << 30, 'x'); }),
            "/some/file: announces more than the memory that a file of its size may take");
}

}  // namespace
}  // namespace tandem
