#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "io/trajectory.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/cli/inspect_command.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;

void write_run(const std::filesystem::path& file, bool finish) {
  TrajectoryHeader header;
  header.spec_text = "seed = 0\ntrain.updates = 5\n";
  header.execution_text = "precision = \"f32\"\n";
  header.batch_global = 2;
  header.provenance = {{"ranks", "2"}};
  TrajectoryWriter writer(file, header, 10.0);
  const double losses[] = {5.0, 3.0, 4.0};
  for (std::int64_t step = 1; step <= 4; ++step) {
    UpdateRow row;
    row.step = step;
    writer.append_update(row);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    EvalRow row;
    row.step = 2 * i;
    row.loss = losses[i];
    row.adapter_digest = sha256_hex(std::to_string(i));
    writer.append_eval(row);
  }
  finish ? writer.finish() : writer.publish();
}

std::string inspect(const std::filesystem::path& path, bool json = false) {
  std::ostringstream out;
  EXPECT_EQ(inspect_command({path, json}, out), 0);
  return out.str();
}

std::string refusal(const std::filesystem::path& path) {
  std::ostringstream out;
  try {
    inspect_command({path, false}, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_TRUE(out.str().empty());
    return error.what();
  }
  ADD_FAILURE() << "no error for " << path;
  return "";
}

#define EXPECT_SAYS(text, part)                                     \
  do {                                                              \
    const std::string text_ = (text);                               \
    EXPECT_NE(text_.find(part), text_.npos) << '"' << text_ << '"'; \
  } while (false)

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
  EXPECT_SAYS(text, "parts          eval, execution, memory, provenance, spec, update");
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

TEST(Inspect, EndsInOneLineOnEveryHostileFile) {
  const auto hostile = support::data_path("hostile/hdf5");
  if (!hostile) GTEST_SKIP() << support::kNoData;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*hostile)) {
    if (!entry.path().extension().string().starts_with(".h")) continue;
    const auto text = refusal(entry.path());
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    EXPECT_SAYS(text, entry.path().filename().string());
    ++files;
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace tandem
