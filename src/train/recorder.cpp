#include "src/train/recorder.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace tandem {

namespace {

TrajectoryHeader header_of(const Config& config, const RunInputs& inputs,
                           const std::map<std::string, std::string>& provenance) {
  TrajectoryHeader header;
  header.spec_text = canonical_text(config.spec);
  header.execution_text = canonical_text(config.execution);
  header.batch_global = config.spec.batch_global;
  header.provenance = provenance;
  header.records_eval = inputs.held_out.samples.size() > 0;
  header.records_observed = config.execution.observe_every > 0;
  header.records_audits = config.execution.audits();
  header.records_norms = header.records_eval;
  header.records_slow = true;
  return header;
}

}  // namespace

AdapterConfig adapter_config(const RunSpec& spec) {
  static const std::map<std::string, std::string> kModules = {
      {"q", "q_proj"},       {"k", "k_proj"},   {"v", "v_proj"},      {"o", "o_proj"},
      {"gate", "gate_proj"}, {"up", "up_proj"}, {"down", "down_proj"}};
  AdapterConfig config{spec.lora_rank, spec.lora_alpha, spec.lora_rslora, spec.lora_dropout, {},
                       spec.model.path};
  for (const std::string& target : spec.lora_targets) config.target_modules.push_back(kModules.at(target));
  return config;
}

Recorder::Recorder(const RunFolder& folder, const Config& config, const RunInputs& inputs,
                   const Weights& weights, const LoraLayout& lora, const std::optional<Probe>& probe,
                   const std::map<std::string, std::string>& provenance, const std::filesystem::path& begin)
    : folder_(folder),
      config_(config),
      lora_(lora),
      writer_(folder.trajectory(), header_of(config, inputs, provenance), config.run.flush_s, begin) {
  writer_.set_load(weights.load_rows(), inputs.config.echo());
  // Training rows that are tokenised need no template; held-out ones may.
  const std::string& of_train = inputs.train.report.template_digest;
  writer_.set_render(inputs.train.samples, inputs.held_out.samples,
                     of_train.empty() ? inputs.held_out.report.template_digest : of_train);
  if (probe) writer_.set_probe(probe->tokens(), inputs.config.n_layers);
  std::vector<std::string> names;
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const LoraTensor& tensor : lora.tensors()) {
    names.push_back(tensor.name);
    shapes.emplace_back(tensor.rows, tensor.cols);
  }
  writer_.set_adapter(names, shapes);
}

void Recorder::update(std::int64_t t, const UpdateResult& result, const Trainer& trainer, double seconds) {
  UpdateRow row;
  row.step = t;
  row.optimizer_step = trainer.steps_made();
  row.loss = result.loss;
  row.n_targets = result.n_targets;
  row.grad_norm = result.grad_norm;
  row.clip = result.clip;
  row.lr = result.lr;
  row.n_samples = static_cast<std::int64_t>(result.sample_ids.size());
  row.checksum = result.checksum;
  row.seconds = seconds;
  row.adapter_checksum = result.adapter_checksum;
  row.sample_ids = result.sample_ids;
  writer_.append_update(row);
  const std::int64_t every = config_.execution.observe_every;
  if (every > 0 && t % every == 0) writer_.append_observed(t, trainer.tensor_norms());
  writer_.maybe_publish();
}

void Recorder::snapshot(std::int64_t t, const Trainer& trainer) {
  std::vector<SnapshotPart> parts;
  for (const std::string& what : config_.execution.snapshot_what) {
    const std::span<const float> flat = what == "adapter" ? trainer.adapter()
                                        : what == "m"     ? trainer.m()
                                        : what == "v"     ? trainer.v()
                                                          : trainer.gradient();
    parts.push_back({what, lora_.spans(flat)});
  }
  writer_.write_snapshot(t, parts);
}

void Recorder::evaluation(std::int64_t t, const EvalResult& result, Trainer& trainer, double seconds,
                          std::int64_t host_bytes) {
  EvalRow row;
  row.step = t;
  row.nll_sum = result.nll_sum;
  row.n_tokens = result.n_tokens;
  row.loss = result.loss();
  row.seconds = seconds;
  row.adapter_digest = adapter_digest(lora_.views(std::as_const(trainer).adapter()));
  row.host_bytes = host_bytes;
  row.device_bytes = trainer.device_bytes();
  if (trainer.probe()) row.probe = trainer.probe()->row();
  row.norms = {trainer.ba_norms(), trainer.update_norms()};
  writer_.append_eval(row);
  if (t > 0) save_adapter(trainer);
  writer_.publish();
}

void Recorder::save_adapter(const Trainer& trainer) {
  write_adapter(folder_.adapter(), adapter_config(config_.spec), lora_.views(trainer.adapter()));
}

void Recorder::finish(const std::string& end_time) {
  writer_.set_provenance("end", end_time);
  writer_.finish();
}

void Recorder::resumed(const std::string& text) {
  writer_.add_provenance("resumed", text);
  writer_.remove_other_snapshots();
}

void Recorder::save_after_failure() noexcept {
  try {
    writer_.publish();
  } catch (const std::exception&) {
    // The earlier publication stands.
  }
}

}  // namespace tandem
