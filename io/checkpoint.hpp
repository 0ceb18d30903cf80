// Checkpoints: folders of files that say of themselves that they are whole (io/FORMAT.md, "Checkpoints").
//
// A checkpoint is FOLDER/<update>/, published like every folder (publish.hpp): filled under a temporary name,
// every file fsynced, renamed. Its last file, checkpoint.json, holds the state's small numbers and of every
// other file the size and SHA-256; what does not agree with it is never loaded. Errors are kInput.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/publish.hpp"

namespace tandem {

inline constexpr std::int64_t kCheckpointVersion = 1;

// Where a run stands after an update, all but the tensors.
struct CheckpointState {
  std::int64_t update = 0;      // made so far
  std::int64_t steps_made = 0;  // optimiser steps among them
  bool evaluated = false;       // the evaluation that is due after `update` has been recorded
  std::string spec_text, execution_text;
  // Checksums (SPEC.md, "Digests") of adapter, m and v.
  std::array<std::uint64_t, 3> checksums{};
  double seconds = 0.0;  // of the updates
  std::int64_t tokens = 0, targets = 0;
  // Held-out: at the beginning and newest, per token; the update of the newest; without adapter at the
  // beginning.
  std::optional<double> loss_before, loss_after;
  std::optional<std::int64_t> loss_update;
  double off_nll_sum = 0.0;
  std::int64_t off_tokens = 0;
  std::vector<double> update_norms;  // of the update, for an evaluation still due
  std::int64_t audits_begun = 0;
  bool base_weights_closed = false;  // those at the end of the run were handed to the mirror
  std::string written_at;            // UTC, filled in when it is written
};

// As JSON, each number with all its bits; the second throws kInput for what is not such a text.
std::string checkpoint_text(const CheckpointState& state);
CheckpointState parse_checkpoint_text(std::string_view text);

class CheckpointWriter {
 public:
  // `checkpoints` is made where it is absent; what stands at checkpoints/<update> already is replaced.
  CheckpointWriter(const std::filesystem::path& checkpoints, std::int64_t update);

  // Where files and folders go.
  const std::filesystem::path& staging() const { return folder_.staging(); }
  // The same file under another name: a hard link, or a copy where there are none. The original must never be
  // written to in place.
  void add_link(const std::filesystem::path& file, const std::filesystem::path& name);
  void publish(CheckpointState state);

 private:
  std::filesystem::path path_;
  FolderPublisher folder_;
};

// The folders there whose names are numbers, highest first; temporary ones are no checkpoints.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& checkpoints);

// Reads every file of it. Throws kInput, naming the file, where one is missing or is not what checkpoint.json
// says.
CheckpointState read_checkpoint(const std::filesystem::path& checkpoint);

// The newest sound one, and a line on each newer one that is not.
struct FoundCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& checkpoints,
                                               std::vector<std::string>& passed_over);

// Deletes all but the newest `keep` and the one that has the lowest held-out loss (of those whose update was
// evaluated), and what broken saves left. For the one process that writes there.
void prune_checkpoints(const std::filesystem::path& checkpoints, std::int64_t keep);

// Deletes what broken saves and removals of any process left there. For the one process that writes there.
void remove_broken_saves(const std::filesystem::path& checkpoints);

}  // namespace tandem
