// Writes a run's observations: the trajectory, its snapshots, the newest adapter. Rank 0 only.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/adapter.hpp"
#include "io/trajectory.hpp"
#include "src/model/lora.hpp"
#include "src/model/weights.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/inputs.hpp"
#include "src/train/run_folder.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

// The settings of the run's adapter, as PEFT has them.
AdapterConfig adapter_config(const RunSpec& spec);

class Recorder {
 public:
  // begin: the trajectory that is continued; empty: a new one.
  Recorder(const RunFolder& folder, const Config& config, const RunInputs& inputs, const Weights& weights,
           const LoraLayout& lora, const std::optional<Probe>& probe,
           const std::map<std::string, std::string>& provenance, const std::filesystem::path& begin = {});

  void update(std::int64_t t, const UpdateResult& result, const Trainer& trainer, double seconds);
  // Before the step of update t: what that update started from, and its gradient.
  void snapshot(std::int64_t t, const Trainer& trainer);
  // Publishes the trajectory, and the adapter once it has been trained.
  void evaluation(std::int64_t t, const EvalResult& result, Trainer& trainer, double seconds,
                  std::int64_t host_bytes);
  void loss_adapter_off(double start, double end) { writer_.set_loss_adapter_off(start, end); }
  void save_adapter(const Trainer& trainer);
  void publish() { writer_.publish(); }
  TrajectoryWriter& writer() { return writer_; }
  const RunFolder& folder() const { return folder_; }
  void finish(const std::string& end_time);
  // Of a continued run: says so in the file, and deletes snapshots of later updates.
  void resumed(const std::string& text);
  // For a run that ends with an error: publishes the updates made, incomplete. What goes wrong here is not
  // said: the error that ends the run is.
  void save_after_failure() noexcept;

 private:
  const RunFolder& folder_;
  const Config& config_;
  const LoraLayout& lora_;
  TrajectoryWriter writer_;
};

}  // namespace tandem
