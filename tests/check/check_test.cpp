#include "src/check/check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "io/trajectory_reader.hpp"
#include "io/trajectory_validation.hpp"
#include "src/base/error.hpp"
#include "src/check/temporary_folder.hpp"
#include "tests/check/tiny_check.hpp"
#include "tests/support/edit_tensors.hpp"

namespace tandem::check_test {
namespace {

namespace fs = std::filesystem;

const CheckLine& line_of(const CheckReport& report, const std::string& name) {
  const auto found = std::find_if(report.lines.begin(), report.lines.end(),
                                  [&](const CheckLine& line) { return line.name == name; });
  if (found == report.lines.end()) throw Error(ErrorKind::kInternal, "no line " + name);
  return *found;
}

std::string all_of(const CheckReport& report) {
  std::string text;
  for (const CheckLine& line : report.lines) {
    text += cat(line.name, " ", static_cast<int>(line.verdict), " ", line.summary, "\n");
    for (const std::string& what : line.findings) text += "  " + what + "\n";
    for (const std::string& what : line.left_out) text += "  not checked: " + what + "\n";
  }
  return text;
}

// The system's temporary directory, for the time of a test.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const fs::path& path) {
    if (const char* now = std::getenv("TMPDIR")) before_ = now;
    setenv("TMPDIR", path.c_str(), 1);
  }
  ~TemporaryDirectory() { before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1); }

 private:
  std::string before_;
};

struct Run {
  std::string name, kind;
  double dropout = 0.0;
  bool bf16 = false;
  std::vector<std::string> targets = {"q", "k", "v", "o", "gate", "up", "down"};
};

class Check : public testing::TestWithParam<Run> {};

TEST_P(Check, PassesWhereNothingIsWrong) {
  const support::TempFolder folder;
  Config config = tiny_run(folder, GetParam().kind, GetParam().bf16);
  config.spec.lora_dropout = GetParam().dropout;
  config.spec.lora_targets = GetParam().targets;
  config.spec.optim_weight_decay = 0.1;
  const CpuContext ctx(2);
  const CheckReport report = run_check(config, ctx, {});
  std::vector<std::string> names;
  for (const CheckLine& line : report.lines) {
    names.push_back(line.name);
    EXPECT_EQ(line.verdict, Verdict::kPass) << all_of(report);
    EXPECT_TRUE(line.left_out.empty()) << all_of(report);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"operations", "first update", "untrained loss", "loading",
                                             "adapter", "rendering"}));
  ASSERT_TRUE(report.update && report.untrained && report.adapted && report.merged);
  EXPECT_NE(report.untrained->mirror, report.adapted->mirror);
  EXPECT_EQ(report.shown.size(), 3);
  // A's gradients too: B was not zero.
  for (const double d : report.update->relative_error) EXPECT_GT(d, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Models, Check,
                         testing::Values(Run{"qwen3_tied", "qwen3"}, Run{"qwen2_bias", "qwen2"},
                                         Run{"llama_untied", "llama"}, Run{"llama3_scaling", "llama3"},
                                         Run{"dropout", "qwen3", 0.2}, Run{"bf16", "qwen3", 0.0, true},
                                         Run{"few_modules", "llama", 0.1, false, {"q", "v", "down"}}),
                         [](const auto& run) { return run.param.name; });

TEST(CheckFile, HoldsWhatWasFoundAndIsValid) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  CheckOptions options;
  options.out = folder / "check.h5";
  const CheckReport report = run_check(tiny_run(folder, "qwen3"), ctx, options);
  const Trajectory file = read_trajectory(options.out);
  EXPECT_EQ(file.spec_digest, report.spec_digest);
  ASSERT_TRUE(file.load && file.render);
  EXPECT_EQ(file.render->n_train, 8);
  EXPECT_EQ(file.render->digest.size(), 11u);
  const auto no_plan = [](const std::string&, const std::string&) { return format::RunPlan{}; };
  for (const auto& problem : validate_trajectory(options.out, no_plan).problems)
    ADD_FAILURE() << problem.line();
}

TEST(CheckRun, LeavesNoTemporaryFolderAndNoRunFolder) {
  const support::TempFolder folder, temporary;
  const TemporaryDirectory directory(temporary.path());
  const CpuContext ctx(1);
  Config config = tiny_run(folder, "qwen3");
  config.run.out = folder / "run";
  EXPECT_EQ(run_check(config, ctx, {}).verdict(), Verdict::kPass);
  EXPECT_TRUE(fs::is_empty(temporary.path()));
  EXPECT_FALSE(fs::exists(config.run.out));
}

TEST(CheckRun, SaysWhatItLeftOutWhereTheMirrorWouldTakeTooLong) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  CheckOptions options;
  options.seconds = 1e-12;
  const CheckReport report = run_check(tiny_run(folder, "qwen3"), ctx, options);
  EXPECT_EQ(report.verdict(), Verdict::kPass) << all_of(report);
  EXPECT_EQ(line_of(report, "first update").verdict, Verdict::kSkipped);
  ASSERT_EQ(line_of(report, "untrained loss").left_out.size(), 1u);
  EXPECT_NE(line_of(report, "untrained loss").left_out[0].find("2 of 3 held-out samples"), std::string::npos)
      << all_of(report);
}

TEST(CheckRun, WithoutHeldOutRowsTheLossIsNotChecked) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  Config config = tiny_run(folder, "qwen3");
  config.spec.held_out = {};
  const CheckReport report = run_check(config, ctx, {});
  EXPECT_EQ(report.verdict(), Verdict::kPass) << all_of(report);
  EXPECT_EQ(line_of(report, "untrained loss").verdict, Verdict::kSkipped);
  EXPECT_EQ(line_of(report, "adapter").verdict, Verdict::kPass);
}

// Of a norm that is 0 everywhere some gradients are exactly zero, others of their kind are not.
TEST(CheckRun, PassesWhereSomeGradientsAreExactlyZero) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  const Config config = tiny_run(folder, "qwen3");
  std::size_t changed = 0;
  support::edit_tensors(fs::path(config.spec.model.path) / "model.safetensors", [&](auto& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name.ends_with("input_layernorm.weight"))
        std::fill(tensor.values.begin(), tensor.values.end(), 0.0f), ++changed;
  });
  ASSERT_GT(changed, 0u);
  const CheckReport report = run_check(config, ctx, {});
  EXPECT_EQ(report.verdict(), Verdict::kPass) << all_of(report);
}

TEST(CheckRun, RefusesInputsThatAreNotThere) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  Config config = tiny_run(folder, "qwen3");
  config.spec.held_out.path = (folder / "none.jsonl").string();
  try {
    run_check(config, ctx, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
  }
}

TEST(TemporaryFolders, AreRemovedAlsoWhereAnErrorEndsTheWork) {
  const support::TempFolder temporary;
  const TemporaryDirectory directory(temporary.path());
  try {
    const TemporaryFolder folder;
    support::write_text(folder.path() / "file", "text");
    EXPECT_FALSE(fs::is_empty(temporary.path()));
    throw Error(ErrorKind::kInput, "an error");
  } catch (const Error&) {
  }
  EXPECT_TRUE(fs::is_empty(temporary.path()));
  const TemporaryDirectory nowhere(temporary / "nowhere");
  EXPECT_THROW(TemporaryFolder(), Error);
}

TEST(TemporaryFolders, AreRemovedAlsoWhereASignalEndsTheProcess) {
  const support::TempFolder temporary;
  const TemporaryDirectory directory(temporary.path());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto end = [&] {
      const TemporaryFolder folder;
      support::write_text(folder.path() / "file", "text");
      raise(signal);
      std::this_thread::sleep_for(std::chrono::seconds(30));
    };
    EXPECT_EXIT(end(), testing::KilledBySignal(signal), "");
    EXPECT_TRUE(fs::is_empty(temporary.path())) << signal;
  }
  { const TemporaryFolder folder; }
  struct sigaction action {};
  sigaction(SIGTERM, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

TEST(CheckFile, IsNeverWrittenOverWhatIsRead) {
  const support::TempFolder folder;
  const CpuContext ctx(1);
  const Config config = tiny_run(folder, "qwen3");
  for (const std::string& out :
       {config.spec.train.path, config.spec.held_out.path, config.spec.model.path + "/config.json"}) {
    CheckOptions options;
    options.out = out;
    try {
      run_check(config, ctx, options);
      FAIL() << out;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
      EXPECT_NE(std::string(error.what()).find("choose another name"), std::string::npos) << error.what();
    }
  }
  CheckOptions nowhere;
  nowhere.out = folder / "none" / "check.h5";
  bool computed = false;
  nowhere.progress = [&](const std::string&) { computed = true; };
  EXPECT_THROW(run_check(config, ctx, nowhere), Error);
  EXPECT_FALSE(computed);
}

}  // namespace
}  // namespace tandem::check_test
