#include "io/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::TempFolder;

CheckpointState state_at(std::int64_t update, std::optional<double> loss = std::nullopt) {
  CheckpointState state;
  state.update = update;
  state.steps_made = update - 1;
  state.spec_text = "seed = 0\nspeech = \"é\"\n";
  state.execution_text = "precision = \"f32\"\n";
  state.checksums = {~std::uint64_t{0}, 1, std::uint64_t{1} << 63};
  state.seconds = 0.1;
  state.loss_after = loss;
  if (loss) state.loss_update = update;
  return state;
}

void write(const fs::path& checkpoints, const CheckpointState& state) {
  CheckpointWriter writer(checkpoints, state.update);
  support::write_text(writer.staging() / "moments", cat("moments of ", state.update));
  fs::create_directory(writer.staging() / "adapter");
  support::write_text(writer.staging() / "adapter" / "weights", cat("weights of ", state.update));
  writer.publish(state);
}

std::vector<std::string> names(const fs::path& checkpoints) {
  std::vector<std::string> all;
  for (const fs::path& path : list_checkpoints(checkpoints)) all.push_back(path.filename().string());
  return all;
}

std::string refusal(const fs::path& checkpoint) {
  try {
    (void)read_checkpoint(checkpoint);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

using Names = std::vector<std::string>;

TEST(Checkpoint, TheNewestIsThatOfTheHighestNumberNotOfTheLastName) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints";
  for (const std::int64_t update : {9, 100, 10}) write(all, state_at(update));
  fs::create_directory(all / "latest");
  fs::create_directory(all / "0x200");
  fs::create_directory(all / "200.tandem-elsewhere-17.tmp");
  EXPECT_EQ(names(all), (Names{"100", "10", "9"}));
  std::vector<std::string> passed_over;
  const auto found = find_checkpoint(all, passed_over);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, all / "100");
  EXPECT_EQ(found->state.update, 100);
  EXPECT_EQ(passed_over, Names());
}

TEST(Checkpoint, ItsStateIsReadBackWithAllItsBits) {
  CheckpointState state = state_at(7, std::nextafter(2.5, 3.0));
  state.loss_before = 1.0 / 3.0;
  state.evaluated = state.base_weights_closed = true;
  state.off_nll_sum = 1e300;
  state.off_tokens = state.tokens = state.targets = std::numeric_limits<std::int64_t>::max();
  state.update_norms = {0.1, 5e-324, 0.0};
  state.audits_begun = 3;
  const TempFolder folder;
  write(folder / "checkpoints", state);
  const CheckpointState read = read_checkpoint(folder / "checkpoints" / "7");
  for (const CheckpointState& other : {read, parse_checkpoint_text(checkpoint_text(state))}) {
    EXPECT_EQ(other.update, state.update);
    EXPECT_EQ(other.steps_made, state.steps_made);
    EXPECT_EQ(other.evaluated, state.evaluated);
    EXPECT_EQ(other.spec_text, state.spec_text);
    EXPECT_EQ(other.execution_text, state.execution_text);
    EXPECT_EQ(other.checksums, state.checksums);
    EXPECT_EQ(other.seconds, state.seconds);
    EXPECT_EQ(other.tokens, state.tokens);
    EXPECT_EQ(other.targets, state.targets);
    EXPECT_EQ(other.loss_before, state.loss_before);
    EXPECT_EQ(other.loss_after, state.loss_after);
    EXPECT_EQ(other.loss_update, state.loss_update);
    EXPECT_EQ(other.off_nll_sum, state.off_nll_sum);
    EXPECT_EQ(other.off_tokens, state.off_tokens);
    EXPECT_EQ(other.update_norms, state.update_norms);
    EXPECT_EQ(other.audits_begun, state.audits_begun);
    EXPECT_EQ(other.base_weights_closed, state.base_weights_closed);
  }
  EXPECT_EQ(read.written_at.size(), std::string("2025-01-31T12:00:00Z").size());
  EXPECT_FALSE(parse_checkpoint_text(checkpoint_text(state_at(1))).loss_after.has_value());
}

TEST(Checkpoint, TheNewestAndTheBestEvaluatedStay) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints";
  write(all, state_at(8, 3.0));
  write(all, state_at(9, 2.0));  // the best
  write(all, state_at(10, 2.5));
  CheckpointState carried = state_at(11, 1.0);  // the loss is of an update before it
  carried.loss_update = 10;
  write(all, carried);
  write(all, state_at(12));
  prune_checkpoints(all, 2);
  EXPECT_EQ(names(all), (Names{"12", "11", "9"}));
  prune_checkpoints(all, 1);
  EXPECT_EQ(names(all), (Names{"12", "9"}));
  write(all, state_at(13, 2.0));  // as good: the first of the two stays
  prune_checkpoints(all, 1);
  EXPECT_EQ(names(all), (Names{"13", "9"}));
  for (const fs::path& path : list_checkpoints(all)) EXPECT_EQ(refusal(path), "");
}

// R40, R41.
TEST(Checkpoint, WhatABrokenSaveLeftIsNoCheckpointAndIsReplaced) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints";
  write(all, state_at(1));
  fs::create_directories(all / "2" / "adapter");  // half filled, without the mark
  support::write_text(all / "2" / "moments", "half");
  support::write_text(all / "2" / "stray", "of nobody");
  fs::create_directory(all / "3.tandem-elsewhere-17.tmp");
  fs::create_directory(all / "1.tandem-elsewhere-17.old");
  std::vector<std::string> passed_over;
  EXPECT_EQ(find_checkpoint(all, passed_over)->path, all / "1");
  ASSERT_EQ(passed_over.size(), 1u);
  EXPECT_SAYS(passed_over[0], "2: is not complete: no checkpoint.json");
  write(all, state_at(2));
  EXPECT_EQ(read_checkpoint(all / "2").update, 2);
  EXPECT_FALSE(fs::exists(all / "2" / "stray"));
  remove_broken_saves(all);
  Names left;
  for (const auto& entry : fs::directory_iterator(all)) left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (Names{"1", "2"}));
  // A file in its place is somebody's.
  support::write_text(all / "4", "mine");
  EXPECT_THROW(write(all, state_at(4)), Error);
  EXPECT_EQ(support::read_text(all / "4"), "mine");
  EXPECT_SAYS(refusal(all / "4"), "is no folder of a checkpoint");
}

TEST(Checkpoint, AWriterThatIsGivenUpLeavesWhatWasThere) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints";
  write(all, state_at(5));
  {
    CheckpointWriter writer(all, 5);
    support::write_text(writer.staging() / "moments", "other");
  }
  EXPECT_EQ(read_checkpoint(all / "5").update, 5);
  EXPECT_EQ(std::distance(fs::directory_iterator(all), {}), 1);
  EXPECT_THROW(CheckpointWriter(folder / "gone" / "checkpoints", 1), Error) << "a folder that vanished";
  EXPECT_FALSE(fs::exists(folder / "gone"));
}

TEST(Checkpoint, ADamagedFileIsNamed) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints", one = all / "1";
  const auto anew = [&] { write(all, state_at(1)); };
  anew();
  EXPECT_EQ(refusal(one), "");
  support::write_text(one / "adapter" / "weights", "weights oF 1");
  EXPECT_SAYS(refusal(one), (one / "adapter" / "weights").string() + ": is damaged: its SHA-256");
  anew();
  support::write_text(one / "moments", "moments of");
  EXPECT_SAYS(refusal(one), (one / "moments").string() + ": is damaged: 10 bytes in place of 12");
  anew();
  fs::remove(one / "moments");
  EXPECT_SAYS(refusal(one), (one / "moments").string() + ": is missing");
  anew();
  const std::string mark = support::read_text(one / "checkpoint.json");
  support::write_text(one / "checkpoint.json", mark.substr(0, mark.size() / 2));
  EXPECT_SAYS(refusal(one), (one / "checkpoint.json").string() + ": is damaged");
  for (const auto& [from, to, said] :
       {std::tuple{"\"format_version\": 1", "\"format_version\": 2", "format version 2"},
        {"tandem-checkpoint", "another", "is no checkpoint"},
        {"\"files\"", "\"Files\"", "is damaged"},
        {"\"update\": 1", "\"update\": \"1\"", "is damaged"}}) {
    std::string other = mark;
    other.replace(other.find(from), std::string(from).size(), to);
    support::write_text(one / "checkpoint.json", other);
    EXPECT_SAYS(refusal(one), said);
  }
  EXPECT_THROW((void)parse_checkpoint_text("{"), Error);
}

TEST(Checkpoint, LinkedFilesAreHeldToTheirContentToo) {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints", file = folder / "native.h5";
  support::write_text(file, "rows");
  {
    CheckpointWriter writer(all, 1);
    writer.add_link(file, "evaluated/native.h5");
    writer.publish(state_at(1));
  }
  EXPECT_EQ(support::read_text(all / "1" / "evaluated" / "native.h5"), "rows");
  EXPECT_EQ(refusal(all / "1"), "");
  support::write_text(folder / "new", "more rows");
  fs::rename(folder / "new", file);  // as it is published
  EXPECT_EQ(refusal(all / "1"), "");
}

}  // namespace
}  // namespace tandem
