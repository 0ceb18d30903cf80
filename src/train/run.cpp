#include "src/train/run.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>

#include "comm/peak_memory.hpp"
#include "comm/topology.hpp"
#include "io/publish.hpp"
#include "kernels/product.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/spec/digests.hpp"
#include "src/train/recorder.hpp"
#include "src/train/run_log.hpp"

namespace tandem {

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

RenderOptions render_options(const RunSpec& spec, const ModelConfig& config) {
  return {spec.data_template,   spec.data_max_tokens,      spec.data_truncate,
          spec.data_targets,    spec.data_special_in_text, config.vocab_size};
}

RunInputs load_inputs(const RunSpec& spec) {
  RunInputs inputs;
  inputs.config = read_model_config(spec.model.path);
  if (spec.data_max_tokens > inputs.config.max_positions)
    throw Error(ErrorKind::kUsage, cat("data.max_tokens = ", spec.data_max_tokens, ": the model takes at most ",
                                       inputs.config.max_positions, " (max_position_embeddings)"));
  const RenderOptions options = render_options(spec, inputs.config);
  inputs.train = load_dataset(spec.train.path, spec.model.path, options);
  if (inputs.train.report.target_tokens == 0)
    throw Error(ErrorKind::kInput, cat(spec.train.path, ": no sample has a token to learn: every assistant turn is empty or was "
                                       "cut away by data.max_tokens = ", spec.data_max_tokens));
  if (spec.held_out.given()) {
    inputs.held_out = load_dataset(spec.held_out.path, spec.model.path, options);
    if (inputs.held_out.report.target_tokens == 0)
      throw Error(ErrorKind::kInput, cat(spec.held_out.path, ": no held-out sample has a token to score"));
  }
  return inputs;
}

void report(RunLog& log, const char* what, const std::string& path, const Dataset& data, std::int64_t max_tokens) {
  const DatasetReport& r = data.report;
  log.line(cat(what, " ", path, ": ", data.samples.size(), " samples of ", r.rows, " rows, ", r.tokens, " tokens (", r.target_tokens,
               " scored), longest ", r.longest));
  if (r.cut) log.warning(cat(r.cut, " samples cut to data.max_tokens = ", max_tokens));
  if (r.dropped) log.warning(cat(r.dropped, " samples left out: longer than data.max_tokens = ", max_tokens));
  if (r.without_targets) log.warning(cat(r.without_targets, " samples have nothing to score; they keep their place and add 0"));
  if (r.reasoning_dropped) log.line(cat(r.reasoning_dropped, " earlier think parts left out, as the template does"));
  if (r.special_in_text)
    log.warning(cat(r.special_in_text, " rows hold control tokens in their text, first in line ", r.first_special_line));
}

// What must be equal on all ranks before anything is computed together.
void check_ranks(Communicator& comm, const Config& config, const RunInputs& inputs, const Weights& weights,
                 const std::map<std::string, std::string>& facts) {
  for (const auto& [name, value] : facts) require_equal(comm, name, value);
  require_equal(comm, "the spec's digest", spec_digest(config.spec), ErrorKind::kInput);
  std::string loaded;
  for (const LoadRow& row : weights.load_rows()) loaded += row.digest;
  require_equal(comm, "the digest of the weights", sha256_hex(loaded), ErrorKind::kInput);
  std::string samples;
  for (const Dataset* data : {&inputs.train, &inputs.held_out})
    for (std::int64_t i = 0; i < data->samples.size(); ++i) samples += data->samples.digest(i);
  require_equal(comm, "the digest of the samples", sha256_hex(samples), ErrorKind::kInput);
}

class Loop {
 public:
  Loop(const Config& config, Communicator& comm, Communicator& node, RunLog& log, Trainer& trainer, Recorder* recorder,
       bool evaluates)
      : config_(config), comm_(comm), node_(node), log_(log), trainer_(trainer), recorder_(recorder),
        evaluates_(evaluates) {}

  RunSummary run() {
    const std::int64_t last = config_.spec.train_updates;
    double off_before = 0.0;
    if (evaluates_) {
      off_before = trainer_.evaluate(false).loss();
      if (recorder_) recorder_->loss_adapter_off(off_before, std::nan(""));
      evaluate(0);
    }
    for (std::int64_t t = 1; t <= last; ++t) {
      update(t);
      if (evaluates_ && (t % config_.spec.eval_every == 0 || t == last)) evaluate(t);
    }
    if (evaluates_) {
      const double off_after = trainer_.evaluate(false).loss();
      if (recorder_) recorder_->loss_adapter_off(off_before, off_after);
    } else if (recorder_) {
      recorder_->save_adapter(trainer_);
    }
    const PeakMemory memory = gather_peak_memory(comm_, node_);
    summary_.updates = last;
    summary_.rank_bytes = memory.rank_bytes;
    summary_.node_bytes = memory.node_bytes;
    return summary_;
  }

 private:
  void update(std::int64_t t) {
    const double start = now_s();
    UpdateResult result = trainer_.compute_gradient(t);
    const std::int64_t every = config_.execution.snapshot_every;
    if (recorder_ && every > 0 && t % every == 0) recorder_->snapshot(t, trainer_);
    trainer_.step(t, result);
    const double seconds = now_s() - start;
    summary_.seconds += seconds;
    summary_.tokens += result.n_tokens;
    summary_.targets += result.n_targets;
    if (recorder_) recorder_->update(t, result, trainer_, seconds);
    const bool line = t == 1 || t % config_.run.log_every == 0 || t == config_.spec.train_updates;
    const std::string text = progress_text(t, result);
    if (log_.terminal())
      log_.progress(text);
    else if (line)
      log_.line(text);
    if (result.n_targets == 0) log_.warning(cat("update ", t, " has no token to score: no step made"));
  }

  std::string progress_text(std::int64_t t, const UpdateResult& result) const {
    const std::int64_t last = config_.spec.train_updates;
    const double left = summary_.seconds / static_cast<double>(t) * static_cast<double>(last - t);
    return cat("update ", t, "/", last,
               formatted("  loss %.4f  grad norm %.3g  lr %.3g  %.0f tokens/s  %.0f s left", result.loss, result.grad_norm,
                         result.lr, static_cast<double>(summary_.tokens) / summary_.seconds, left));
  }

  void evaluate(std::int64_t t) {
    const double start = now_s();
    const EvalResult result = trainer_.evaluate(true);
    const double seconds = now_s() - start;
    const PeakMemory memory = gather_peak_memory(comm_, node_);
    if (recorder_) recorder_->evaluation(t, result, trainer_, seconds, memory.rank_bytes);
    log_.line(cat("evaluation after update ", t, formatted(": held-out loss %.6f (%lld tokens, %.1f s)", result.loss(), static_cast<long long>(result.n_tokens), seconds)));
    if (!summary_.loss_before) summary_.loss_before = result.loss();
    summary_.loss_after = result.loss();
  }

  const Config& config_;
  Communicator& comm_;
  Communicator& node_;
  RunLog& log_;
  Trainer& trainer_;
  Recorder* recorder_;
  bool evaluates_;
  RunSummary summary_;
};

}  // namespace

RunSummary run_training(Config config, Communicator& comm, const std::map<std::string, std::string>& facts) {
  RunLog log(comm.rank() == 0);
  const std::unique_ptr<Communicator> node = comm.node();
  const Placement placement = place(comm, static_cast<int>(config.execution.threads));
  for (const std::string& line : comm.all_gather_text(start_line(placement))) log.line(line);
  for (const std::string& warning : comm.all_gather_text(oversubscription_warning(placement)))
    if (!warning.empty()) log.warning(warning);
  pin_threads(placement.share);
  const CpuContext ctx(placement.share.threads);

  const RunFolder folder{config.run.out};
  const RunInputs inputs = agree(comm, [&] {
    if (comm.rank() == 0) check_run_folder(folder, config.run.overwrite);
    digest_inputs(config.spec);
    RunInputs loaded = load_inputs(config.spec);
    resolve(config.spec, loaded.train.samples.size());
    return loaded;
  });
  const std::unique_ptr<Weights> weights =
      agree(comm, [&] { return std::make_unique<Weights>(config.spec.model.path, inputs.config); });
  config.execution.ranks = comm.size();
  config.execution.device = "cpu";
  check_ranks(comm, config, inputs, *weights, facts);

  report(log, "training data", config.spec.train.path, inputs.train, config.spec.data_max_tokens);
  if (config.spec.held_out.given())
    report(log, "held-out data", config.spec.held_out.path, inputs.held_out, config.spec.data_max_tokens);
  for (const std::string& warning : weights->warnings()) log.warning(warning);

  const LoraLayout lora(inputs.config, config.spec.lora_rank, config.spec.lora_scale(), config.spec.lora_targets);
  const std::unique_ptr<Trainer> trainer = agree(comm, [&] {
    return std::make_unique<Trainer>(ctx, comm, config.spec, config.execution, inputs.config, *weights, lora,
                                     inputs.train.samples, inputs.held_out.samples);
  });
  lora.initialise(trainer->adapter(), config.spec.seed_adapter);
  log.line(cat(inputs.config.model_type, " with ", inputs.config.n_layers, " layers; adapter of rank ",
               config.spec.lora_rank, " on ", lora.tensors().size() / 2, " modules; ", config.spec.train_updates,
               " updates of ", config.spec.batch_global, " samples on ", comm.size(), comm.size() == 1 ? " rank" : " ranks"));

  std::vector<std::string> hosts;
  for (std::string& host : comm.all_gather_text(placement.host))
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(std::move(host));
  const std::unique_ptr<Recorder> recorder = agree(comm, [&] {
    if (comm.rank() != 0) return std::unique_ptr<Recorder>();
    prepare_run_folder(folder);
    log.open(folder.log());
    publish_file(folder.spec(), canonical_text(config.spec));
    publish_file(folder.execution(), canonical_text(config.execution));
    std::map<std::string, std::string> provenance = facts;
    provenance["arithmetic"] = "native";
    provenance["orchestration"] = "tandem";
    provenance["runtime"] = cat("tandem/", "cpu");
    provenance["start"] = utc_time();
    provenance["ranks"] = cat(comm.size());
    provenance["threads"] = cat(placement.share.threads);
    std::string names;
    for (const std::string& host : hosts) names += (names.empty() ? "" : ",") + host;
    provenance["hosts"] = names;
    return std::make_unique<Recorder>(folder, config, inputs, *weights, lora, provenance);
  });

  RunSummary summary =
      Loop(config, comm, *node, log, *trainer, recorder.get(), inputs.held_out.samples.size() > 0).run();
  agree(comm, [&] {
    if (recorder) recorder->finish(utc_time());
  });
  summary.n_train = inputs.train.samples.size();
  summary.n_held_out = inputs.held_out.samples.size();
  log.line(cat(formatted("%.1f s of updates, %.0f tokens/s; peak memory %.2f GiB in the largest rank, %.2f GiB in the largest node",
                         summary.seconds, static_cast<double>(summary.tokens) / summary.seconds,
                         static_cast<double>(summary.rank_bytes) / 0x1p30, static_cast<double>(summary.node_bytes) / 0x1p30)));
  return summary;
}

}  // namespace tandem
