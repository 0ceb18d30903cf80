#include "src/cli/audit_command.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "io/trajectory_reader.hpp"
#include "src/audit/check_update.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// RUN/native.snapshots/40.h5 belongs to RUN/native.h5.
Trajectory trajectory_of(const fs::path& snapshot) {
  const fs::path folder = fs::absolute(snapshot).parent_path();
  if (folder.extension() != ".snapshots")
    throw Error(
        ErrorKind::kInput,
        cat(snapshot.string(), ": a snapshot lies in a run's folder native.snapshots, beside native.h5"));
  return read_untrusted_trajectory(folder.parent_path() / (folder.stem().string() + ".h5"));
}

std::int64_t step_of(const fs::path& snapshot) {
  const auto step = number_in_name(snapshot.stem().string());
  if (step.value_or(0) < 1)
    throw Error(ErrorKind::kInput, cat(snapshot.string(), ": a snapshot's name is its update, like 40.h5"));
  return *step;
}

std::string input_path(const Trajectory& run, const std::string& given, const char* key) {
  if (!given.empty()) return given;
  const auto found = run.provenance.find(cat("path.", key));
  if (found == run.provenance.end())
    throw Error(ErrorKind::kInput,
                cat(run.path.string(), ": does not say where its ", key, " lies; give --", key));
  return found->second;
}

std::optional<fs::path> optional_path(const Trajectory& run, const std::string& given, const char* key) {
  const auto spec = canonical_values(run.spec_text);
  if (const auto found = spec.find(key); found != spec.end() && found->second == "none") return std::nullopt;
  return input_path(run, given, key);
}

FlatTensors flat(const fs::path& snapshot, const char* part, const Trajectory::AdapterNames& adapter) {
  FlatTensors all;
  for (const auto& tensor : read_snapshot(snapshot, part, adapter))
    for (const double x : tensor) all.push_back(static_cast<float>(x));
  return all;
}

UpdateJob update_of(const Trajectory& run, const fs::path& snapshot) {
  const std::int64_t step = step_of(snapshot);
  if (!run.updates || !run.adapter)
    throw Error(ErrorKind::kInput, cat(run.path.string(), ": holds no updates"));
  const auto& updates = *run.updates;
  const auto found = std::find(updates.step.begin(), updates.step.end(), step);
  if (found == updates.step.end())
    throw Error(ErrorKind::kInput, cat(run.path.string(), ": holds no update ", step));
  const auto row = static_cast<std::size_t>(found - updates.step.begin());
  UpdateJob job;
  job.step = step;
  job.steps_before = row > 0 ? updates.optimizer_step[row - 1] : 0;
  const auto width = static_cast<std::size_t>(updates.batch_global);
  for (std::size_t i = 0; i < width; ++i)
    if (const std::int64_t id = updates.sample_ids[row * width + i]; id >= 0) job.sample_ids.push_back(id);
  job.n_targets = updates.n_targets[row];
  job.loss = updates.loss[row];
  job.norm = updates.grad_norm[row];
  job.clip = updates.clip[row];
  job.lr = updates.lr[row];
  job.adapter = flat(snapshot, "adapter", *run.adapter);
  job.m = flat(snapshot, "m", *run.adapter);
  job.v = flat(snapshot, "v", *run.adapter);
  job.gradient = flat(snapshot, "gradient", *run.adapter);
  if (run.load) job.config = run.load->config;
  if (run.render)
    for (const std::int64_t id : job.sample_ids)
      job.sample_digests.push_back(id < run.render->n_train ? run.render->digest[static_cast<std::size_t>(id)]
                                                            : "");
  return job;
}

// What is compared element by element must be of one shape.
void check_adapter(const Trajectory& run, const UpdateJob& update, const mirror::Mirror& mirror) {
  std::vector<std::string> names;
  std::size_t n = 0;
  for (const auto& tensor : mirror.adapter_tensors()) {
    names.push_back(tensor.name);
    n += static_cast<std::size_t>(tensor.rows * tensor.columns);
  }
  bool fits = names == run.adapter->names;
  for (const FlatTensors* flat : {&update.adapter, &update.m, &update.v, &update.gradient})
    fits = fits && flat->size() == n;
  if (!fits)
    throw Error(
        ErrorKind::kInput,
        cat(run.path.string(), ": its adapter or its snapshots' is not the one that its spec asks for"));
}

std::string precision_of(const Trajectory& run) {
  const auto execution = canonical_values(run.execution_text);
  const auto found = execution.find("precision");
  return found == execution.end() ? "f32" : found->second;
}

void write_text(const AuditOutcome& outcome, const Trajectory& run, std::ostream& out) {
  std::size_t worst = 0;
  for (std::size_t p = 0; p < outcome.relative_error.size(); ++p)
    if (outcome.relative_error[p] / outcome.bound[p] > outcome.relative_error[worst] / outcome.bound[worst])
      worst = p;
  out << "update " << outcome.step << ": " << name_of(outcome.verdict)
      << (outcome.note.empty() ? "" : ": " + outcome.note) << "\n"
      << "loss: relative error " << outcome.loss_error << "; gradient norm: " << outcome.norm_error << "\n";
  if (!outcome.relative_error.empty())
    out << "nearest to its threshold: " << run.adapter->names[worst]
        << ": d = " << outcome.relative_error[worst] << " of " << outcome.bound[worst]
        << ", s - 1 = " << outcome.projection[worst] - 1 << "\n";
}

void write_json(const AuditOutcome& outcome, const Trajectory& run, std::ostream& out) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (std::size_t p = 0; p < outcome.relative_error.size(); ++p)
    tensors.push_back({{"name", run.adapter->names[p]},
                       {"relative_error", outcome.relative_error[p]},
                       {"projection", outcome.projection[p]},
                       {"threshold", outcome.bound[p]}});
  out << nlohmann::ordered_json{{"step", outcome.step},
                                {"verdict", name_of(outcome.verdict)},
                                {"note", outcome.note},
                                {"loss_error", outcome.loss_error},
                                {"norm_error", outcome.norm_error},
                                {"tensors", tensors}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
      << "\n";
}

}  // namespace

int audit_command(const AuditJob& job, std::ostream& out) {
  const Trajectory run = trajectory_of(job.snapshot);
  const UpdateJob update = update_of(run, job.snapshot);
  mirror::Inputs inputs;
  inputs.spec_text = run.spec_text;
  inputs.model = input_path(run, job.model, "model.path");
  inputs.train = input_path(run, job.train, "data.train");
  inputs.held_out = optional_path(run, job.held_out, "data.held_out");
  inputs.lora_init = optional_path(run, job.lora_init, "lora.init");
  inputs.threads = job.threads;
  const mirror::Mirror mirror(inputs);
  check_adapter(run, update, mirror);
  const std::string precision = precision_of(run);
  Thresholds thresholds = calibrate(mirror, precision, job.calibration);
  std::int64_t measured = 0;
  const AuditOutcome outcome = audit_update(mirror, update, precision, thresholds, measured);
  job.json ? write_json(outcome, run, out) : write_text(outcome, run, out);
  return outcome.verdict == Verdict::kPass ? 0 : static_cast<int>(ErrorKind::kDisagreement);
}

}  // namespace tandem
