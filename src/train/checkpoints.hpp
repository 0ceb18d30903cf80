// What a run saves to be continued, and how it is found again (io/FORMAT.md, "Checkpoints").
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/run_folder.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

// How a run begins. On rank 0; the others are told by share_beginning.
struct Beginning {
  enum class Kind { kNew, kResumed, kFinished } kind = Kind::kNew;
  std::filesystem::path checkpoint;  // kResumed
  CheckpointState state;             // kResumed
  std::vector<std::string> lines;    // what to say of it
  std::vector<std::string> warnings;
};

// As run.resume asks. The config's spec must be resolved and digested. Throws kInput where the checkpoint or
// what the run folder holds is of another spec (naming the keys that differ), or of an execution that leaves
// another trajectory; where a folder that was named is no sound checkpoint; where run.out holds checkpoints
// and none is sound, or where the one that was named is not among them. Changes nothing.
Beginning find_beginning(const RunFolder& folder, const Config& config);
// Every rank gets rank 0's kind and state. Collective.
void share_beginning(Communicator& comm, Beginning& beginning);

// "key = A where_a, B where_b" for each key of two canonical texts that differs.
std::vector<std::string> keys_that_differ(const std::string& text_a, const std::string& text_b,
                                          const std::string& where_a = "there",
                                          const std::string& where_b = "here");

// Rank 0: fills adapter and moments from the checkpoint's files. Throws kInput.
void read_tensors(const std::filesystem::path& checkpoint, const RunSpec& spec, Trainer& trainer);
// All ranks get rank 0's adapter, moments and counts, and hold them to the state's checksums. Collective.
void share_tensors(Communicator& comm, const CheckpointState& state, Trainer& trainer);
// Of adapter, m and v, as a state records them.
std::array<std::uint64_t, 3> state_checksums(const Trainer& trainer);

// Rank 0: publishes run.out/checkpoints/<update> and deletes what is older than asked for. The trajectories
// there must have been published at this very update. mirror: MirrorState's bytes; empty: none. Throws
// kInternal where a value of the state is not finite: such a state is never saved.
void write_checkpoint(const RunFolder& folder, const Config& config, CheckpointState state,
                      const Trainer& trainer, std::span<const std::uint8_t> mirror);
// The mirror's bytes of a checkpoint; empty: none.
std::vector<std::uint8_t> read_mirror_bytes(const std::filesystem::path& checkpoint);

// Rank 0, under the folder's lock: what the run left after the checkpoint is removed, but for native.h5,
// which the caller publishes next, and its snapshots.
void go_back_to(const RunFolder& folder, const std::filesystem::path& checkpoint, std::int64_t update);

}  // namespace tandem
