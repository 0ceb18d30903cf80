// A whole training run: inputs, checks over the ranks, the loop, the files it leaves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/gpu_build.hpp"

namespace tandem {

struct RunSummary {
  std::int64_t updates = 0, n_train = 0, n_held_out = 0;
  std::optional<double> loss_before, loss_after;  // held-out, per scored token
  double seconds = 0.0;                           // of the updates
  std::int64_t tokens = 0, targets = 0;           // trained on
  std::int64_t rank_bytes = 0, node_bytes = 0;    // peak host memory of the largest rank and node
  bool was_finished = false;  // before: a finished run was to be resumed, and nothing was done
};

struct RunControl {
  // Asked often, from the thread that trains: whether this rank was told to stop. May differ between ranks.
  std::function<bool()> stop = {};
  std::string command = {};  // how to go on, for the line that a stop ends with; "": not known
  // Told on every rank once the run has its folder: its run.log, for what is said outside run_training.
  std::function<void(const std::filesystem::path& run_log)> log_opened = {};
  GpuBuild* gpus = nullptr;  // none: this program was built without CUDA
};

// Collective: every rank calls it with the same configuration. `facts`: versions and build, recorded in the
// trajectory and compared over the ranks. Throws Error; an AgreedError on all ranks alike, anything else
// perhaps on this one alone (the caller then ends the whole job). Where it was told to stop, AgreedError of
// kind kStopped, after a checkpoint if there was something to save.
RunSummary run_training(Config config, Communicator& comm, const std::map<std::string, std::string>& facts,
                        const RunControl& control = {});

}  // namespace tandem
