#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <sstream>

#include "io/trajectory.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/cli/inspect_command.hpp"
#include "tests/support/data.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;

void write_run(const std::filesystem::path& file, bool finish) {
  TrajectoryHeader header;
  header.spec_text = "eval.every = 2\nseed = 0\ntrain.updates = 5\n";
  header.execution_text = "precision = \"f32\"\n";
  header.batch_global = 2;
  header.provenance = {
      {"ranks", "2"}, {"arithmetic", "native"}, {"orchestration", "tandem"}, {"runtime", "tandem/cpu"}};
  header.records_audits = header.records_slow = true;
  TrajectoryWriter writer(file, header, 10.0);
  const LoadRow load[] = {{"w", sha256_hex("w"), {2}, "F32", 0.0, 1.0}};
  writer.set_load(load, "{}");
  const std::string names[] = {"m.lora_A.weight", "m.lora_B.weight"};
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{2, 3}, {4, 2}};
  writer.set_adapter(names, shapes);
  const double losses[] = {5.0, 3.0, 4.0};
  for (std::int64_t step = 1; step <= 4; ++step) {
    UpdateRow row;
    row.step = row.optimizer_step = step;
    row.loss = 5.0;
    row.n_targets = row.n_samples = 1;
    row.sample_ids = std::span(&step, 1);
    writer.append_update(row);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    EvalRow row;
    row.step = 2 * i;
    row.loss = row.nll_sum = losses[i];
    row.n_tokens = 1;
    row.adapter_digest = sha256_hex(std::to_string(i));
    writer.append_eval(row);
  }
  const std::array error = {1e-6, 3e-6}, bound = {1e-5, 1e-5};
  AuditRow audit;
  for (const Verdict verdict : {Verdict::kPass, Verdict::kPass, Verdict::kBound}) {
    audit.step += 1;
    audit.relative_error = audit.step == 2 ? std::span<const double>(error) : std::span<const double>();
    audit.bound = bound;
    audit.verdict = verdict;
    writer.append_audit(audit);
  }
  writer.append_slow({3, 1, 2.75, "gradient", "node07", "load average 9.00 on 2 CPUs"});
  writer.append_slow({3, -1, 30.0, "all-reduce", "node01", ""});
  finish ? writer.finish() : writer.publish();
}

std::string inspect(const std::filesystem::path& path, bool json = false) {
  std::ostringstream out;
  EXPECT_EQ(inspect_command({path, json, false}, out), 0);
  return out.str();
}

std::string refusal(const std::filesystem::path& path) {
  std::ostringstream out;
  try {
    inspect_command({path, false, false}, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_TRUE(out.str().empty());
    return error.what();
  }
  ADD_FAILURE() << "no error for " << path;
  return "";
}

TEST(Inspect, TellsPeopleHowTheRunWent) {
  TempFolder folder;
  write_run(folder / "native.h5", false);
  const auto text = inspect(folder / "native.h5");
  EXPECT_SAYS(text, "updates        4 of 5");
  EXPECT_SAYS(text, "first 5.000000 at update 0");
  EXPECT_SAYS(text, "best  3.000000 at update 2");
  EXPECT_SAYS(text, "last  4.000000 at update 4");
  EXPECT_SAYS(text, "148.41 -> 54.598 (-63.2 %)");
  EXPECT_SAYS(text, sha256_hex("2") + " after update 4");
  EXPECT_SAYS(text, "complete       no");
  EXPECT_SAYS(text, "ranks          2");
  EXPECT_SAYS(text, "improved       on the best so far 1 of 2 (50.0 %), on the previous 1 of 2 (50.0 %)");
  EXPECT_SAYS(text, "audits         2 PASS, 1 BOUND; largest d/bound 0.3 at update 2, m.lora_B.weight");
  EXPECT_SAYS(text, "slow           gradient of rank 1 at update 3: 2.8 times as slow; load average 9.00 on 2 CPUs");
  EXPECT_SAYS(text, "slow           all-reduce of all ranks at update 3: 30 times as slow");
  EXPECT_SAYS(text, "level 1        operators: absent");
  EXPECT_SAYS(text, "level 2        loading: 1 base tensor, 0 readings of them in memory");
  EXPECT_SAYS(text, "level 3        rendering: absent");
  EXPECT_SAYS(text, "level 4        trajectory: 4 updates, 3 evaluations, 3 audits; absent: observed, probe");
}

TEST(Inspect, TellsProgramsTheSame) {
  TempFolder folder;
  write_run(folder / "native.h5", true);
  write_run(folder / "mirror.h5", false);
  const auto json = nlohmann::json::parse(inspect(folder.path(), true));
  ASSERT_EQ(json["trajectories"].size(), 2u);
  const auto& native = json["trajectories"][1];
  EXPECT_EQ(native["file"], (folder / "native.h5").string());
  EXPECT_EQ(native["complete"], true);
  EXPECT_EQ(json["trajectories"][0]["complete"], false);
  EXPECT_EQ(native["updates"], 4);
  EXPECT_EQ(native["updates_planned"], 5);
  EXPECT_EQ(native["held_out"]["best"]["step"], 2);
  EXPECT_EQ(native["held_out"]["last"]["loss"], 4.0);
  EXPECT_EQ(native["held_out"]["last"]["perplexity"], std::exp(4.0));
  EXPECT_EQ(native["held_out"]["below_best"], 1);
  EXPECT_EQ(native["held_out"]["below_previous"], 1);
  EXPECT_EQ(native["held_out"]["after_first"], 2);
  EXPECT_NEAR(native["held_out"]["perplexity_change"], std::exp(-1.0) - 1.0, 1e-15);
  EXPECT_EQ(native["audits"]["count"], 3);
  EXPECT_EQ(native["audits"]["verdicts"]["BOUND"], 1);
  EXPECT_EQ(native["audits"]["largest"]["tensor"], "m.lora_B.weight");
  EXPECT_EQ(native["audits"]["largest"]["step"], 2);
  ASSERT_EQ(native["slow"].size(), 2u);
  EXPECT_EQ(native["slow"][0]["rank"], 1);
  EXPECT_EQ(native["slow"][0]["host"], "node07");
  EXPECT_EQ(native["slow"][1]["factor"], 30.0);
  EXPECT_EQ(native["levels"][3]["name"], "trajectory");
  EXPECT_EQ(native["adapter_digest"], sha256_hex("2"));
  EXPECT_EQ(native["spec"]["digest_of_text"], "matches");
  EXPECT_EQ(native["provenance"]["ranks"], "2");
}

TEST(Inspect, NamesWhatIsNoTrajectory) {
  TempFolder folder;
  EXPECT_SAYS(refusal(folder.path()), "holds no trajectory");
  EXPECT_SAYS(refusal(folder / "none.h5"), "there is no such file");
  write_run(folder / "native.h5", true);
  const auto bytes = support::read_text(folder / "native.h5");
  support::write_text(folder / "native.h5", bytes.substr(0, bytes.size() / 2));
  EXPECT_SAYS(refusal(folder.path()), "native.h5: cannot be opened as HDF5, damaged or cut short");
}

TEST(Inspect, ValidatesAFolderAndTellsOfWhatIsWrong) {
  TempFolder folder;
  const auto validate = [&](bool json) {
    std::ostringstream out;
    const int code = inspect_command({folder.path(), json, true}, out);
    return std::pair(code, out.str());
  };
  write_run(folder / "mirror.h5", false);
  {
    const auto [code, text] = validate(false);
    EXPECT_EQ(code, 0) << text;
    EXPECT_SAYS(text, "mirror.h5: valid\n");
    EXPECT_SAYS(text, "absent   ");
  }
  write_run(folder / "native.h5", true);  // complete, but 4 of 5 updates
  support::write_text(folder / "other.h5", "text");
  {
    const auto [code, text] = validate(false);
    EXPECT_EQ(code, 3);
    EXPECT_SAYS(text, "native.h5: /update/step: has 4 rows, expected 5, train.updates of /spec/text");
    EXPECT_SAYS(text, "native.h5: /eval/step: ends at 4, expected 5");
    EXPECT_SAYS(text, "native.h5: INVALID: 2 problems\n");
    EXPECT_SAYS(text, "other.h5: is not an HDF5 file (it lacks the signature)\n");
    EXPECT_SAYS(text, "other.h5: INVALID: 1 problem\n");
  }
  const auto [code, text] = validate(true);
  EXPECT_EQ(code, 3);
  const auto files = nlohmann::json::parse(text)["files"];
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0]["valid"], true);
  EXPECT_EQ(files[1]["problems"].size(), 2u);
  EXPECT_EQ(files[1]["problems"][0]["where"], "/update/step");
  EXPECT_EQ(files[1]["problems"][0]["row"], nullptr);
  EXPECT_EQ(files[2]["problems"][0]["where"], "");
}

TEST(Inspect, EndsInOneLineOnEveryHostileFile) {
  const auto hostile = support::data_path("hostile/hdf5");
  if (!hostile) GTEST_SKIP() << support::kNoData;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*hostile)) {
    if (!entry.path().extension().string().starts_with(".h")) continue;
    const auto text = refusal(entry.path());
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    EXPECT_SAYS(text, entry.path().filename().string());
    std::ostringstream validation;
    EXPECT_EQ(inspect_command({entry.path(), false, true}, validation), 3) << validation.str();
    EXPECT_SAYS(validation.str(), "INVALID: 1 problem\n");
    ++files;
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace tandem
