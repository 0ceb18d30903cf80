#include "src/train/run.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "comm/node_memory.hpp"
#include "comm/topology.hpp"
#include "io/publish.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/spec/digests.hpp"
#include "src/train/auditor.hpp"
#include "src/train/batch_limits.hpp"
#include "src/train/checkpoints.hpp"
#include "src/train/cpu_engine.hpp"
#include "src/train/first_adapter.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/inputs.hpp"
#include "src/train/loop.hpp"
#include "src/train/memory_plan.hpp"
#include "src/train/recorder.hpp"
#include "src/train/run_folder.hpp"
#include "src/train/run_log.hpp"
#include "src/train/schedule.hpp"

namespace tandem {

namespace {

void report(RunLog& log, const char* what, const std::string& path, const Dataset& data) {
  const DatasetReport& r = data.report;
  log.line(cat(what, " ", path, ": ", counted(data.samples.size(), "sample"), " of ", counted(r.rows, "row"),
               ", ", counted(r.tokens, "token"), " (", counted(r.target_tokens, "target"), "), longest ",
               r.longest, r.from_cache ? "; from the token cache" : ""));
  if (const std::string note = r.form_note(); !note.empty()) log.line(note);
  for (const std::string& warning : r.warnings()) log.warning(warning);
}

// What must be equal on all ranks before anything is computed together.
void check_ranks(Communicator& comm, Communicator& node, RunLog& log, const Config& config,
                 const RunInputs& inputs, const Weights& weights,
                 const std::map<std::string, std::string>& facts) {
  for (const auto& [name, value] : facts)
    if (name != "instruction_set") require_equal(comm, name, value);
  // Another instruction set computes other bits, but not wrong ones.
  const std::vector<std::string> sets = comm.all_gather_text(config.execution.instruction_set);
  for (std::size_t rank = 1; rank < sets.size(); ++rank)
    if (sets[rank] != sets[0])
      log.warning(cat("rank ", rank, " computes with ", sets[rank], ", rank 0 with ", sets[0],
                      ": the trajectory's bits depend on which rank computes what"));
  // The spec holds the digests of data, tokenizer, template and model configuration, as this rank read them.
  const std::vector<std::string> specs = comm.all_gather_text(canonical_text(config.spec));
  for (std::size_t rank = 1; rank < specs.size(); ++rank)
    if (specs[rank] != specs[0])
      throw AgreedError(
          ErrorKind::kInput,
          cat("ranks read different things: ",
              joined(keys_that_differ(specs[0], specs[rank], "on rank 0", cat("on rank ", rank)), "; "),
              "; each node needs the same files and options"),
          static_cast<int>(rank));
  // Ranks that share their node's copy answer with its digest.
  std::string loaded;
  for (const LoadRow& row : weights.load_rows()) loaded += row.digest;
  const std::string digest = node.all_gather_text(loaded.empty() ? "" : sha256_hex(loaded))[0];
  require_equal(comm, "the digest of the weights", loaded.empty() ? digest : sha256_hex(loaded),
                ErrorKind::kInput);
  std::string samples;
  for (const Dataset* data : {&inputs.train, &inputs.held_out})
    for (std::int64_t i = 0; i < data->samples.size(); ++i) samples += data->samples.digest(i);
  require_equal(comm, "the digest of the samples", sha256_hex(samples), ErrorKind::kInput);
}

std::vector<std::size_t> tensor_sizes(const LoraLayout& lora) {
  std::vector<std::size_t> sizes;
  for (const LoraTensor& tensor : lora.tensors()) sizes.push_back(static_cast<std::size_t>(tensor.size()));
  return sizes;
}

// mirror.h5; none where the mirror makes no run of its own.
std::optional<MirrorRecorder::Free> free_run_file(const Config& config, const RunFolder& folder,
                                                  std::map<std::string, std::string> provenance,
                                                  const std::filesystem::path& checkpoint,
                                                  const std::string& resumed) {
  if (!config.execution.free_run()) return std::nullopt;
  provenance["arithmetic"] = "mirror";
  provenance["orchestration"] = "tandem";
  provenance["runtime"] = "tandem/cpu";
  Execution execution = config.execution;
  execution.precision = "f64";
  execution.gpu = "off";
  execution.device = "cpu";
  execution.batch_micro = 1;
  execution.threads = config.execution.mirror_threads;
  TrajectoryHeader header;
  header.stack = "mirror";
  header.spec_text = canonical_text(config.spec);
  header.execution_text = canonical_text(execution);
  header.batch_global = config.spec.batch_global;
  header.provenance = std::move(provenance);
  header.records_observed = config.execution.observe_every > 0;
  std::filesystem::path begin;
  std::error_code error;
  if (!checkpoint.empty()) begin = checkpoint / folder.mirror_trajectory().filename();
  if (!std::filesystem::exists(begin, error)) begin.clear();
  return MirrorRecorder::Free{folder.mirror_trajectory(), header, config.run.flush_s, begin, resumed};
}

MirrorState mirror_state(const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() ? MirrorState() : parse_mirror_state(bytes);
}

// The mirror's part of a checkpoint, on the mirror's rank. Collective.
std::vector<std::uint8_t> bytes_of_mirror(Communicator& comm, const std::filesystem::path& checkpoint,
                                          int rank) {
  std::vector<std::uint8_t> bytes;
  if (comm.rank() == 0) bytes = read_mirror_bytes(checkpoint);
  std::uint64_t size = bytes.size();
  comm.broadcast(std::as_writable_bytes(std::span(&size, 1)), 0);
  if (comm.rank() == rank) bytes.resize(size);
  comm.transfer(std::as_writable_bytes(std::span(bytes)), 0, rank);
  return bytes;
}

}  // namespace

RunSummary run_training(Config config, Communicator& comm, const std::map<std::string, std::string>& facts,
                        const RunControl& control) {
  // Before there is something to save: collective, between the steps of loading.
  const auto leave_where_stopped = [&] {
    const std::uint64_t n = comm.all_reduce_sum(control.stop && control.stop() ? 1 : 0);
    if (n > 0)
      throw AgreedError(ErrorKind::kStopped,
                        cat("stopped by a signal before the first update; nothing to save",
                            control.command.empty() ? "" : "; go on with: ", control.command),
                        0);
  };
  RunLog log(comm.rank() == 0);
  const std::unique_ptr<Communicator> node = comm.node();
  Placement placement = place(comm, static_cast<int>(config.execution.threads));
  const bool mirrored = config.execution.mirrored();
  const bool beside_mirror =
      agree(comm, [&] { return mirrored && mirror_rank(config.execution, comm.size()) == comm.rank(); });
  std::vector<int> mirror_cpus;
  if (beside_mirror)
    mirror_cpus = reserve_cpus(placement.share, static_cast<int>(config.execution.mirror_threads));
  for (const std::string& line : comm.all_gather_text(start_line(placement))) log.line(line);
  for (const std::string& warning : comm.all_gather_text(oversubscription_warning(placement)))
    if (!warning.empty()) log.warning(warning);
  pin_threads(placement.share);
  const CpuContext ctx(placement.share.threads);

  const RunFolder folder{config.run.out};
  const bool resumes = config.run.resume != "never";
  const RunInputs inputs = agree(comm, [&] {
    if (comm.rank() == 0) {
      check_inputs_apart(folder, config.spec);
      check_run_folder(folder, config.run.overwrite || resumes);
    }
    digest_inputs(config.spec);
    RunInputs loaded =
        load_inputs(config.spec, {.threads = placement.share.threads,
                                  .cache = config.run.cache.path,
                                  .write_cache = node->rank() == 0,
                                  .told = [&](const std::string& text) { log.progress(text); }});
    resolve(config.spec, loaded.train.samples.size());
    return loaded;
  });
  leave_where_stopped();
  config.execution.ranks = comm.size();
  const GpuPlan gpus =
      choose_device(comm, placement.host, config.execution, inputs.config.heads, control.gpus);
  for (const std::string& line : gpus.lines) log.line(line);
  if (!gpus.warning.empty()) log.warning(gpus.warning);
  if (!gpus.device && config.execution.gpu == "auto" && control.gpus)
    log.line(cat("computing on the CPU: ", gpus.why_none));
  config.execution.device = gpus.device ? gpus.gpu.name : "cpu";
  // What cannot be continued is said before the weights are read; under the lock it is looked at again.
  Beginning beginning =
      agree(comm, [&] { return comm.rank() == 0 ? find_beginning(folder, config) : Beginning(); });
  share_beginning(comm, beginning);
  if (beginning.kind == Beginning::Kind::kFinished) {
    for (const std::string& line : beginning.lines) log.line(line);
    RunSummary summary;
    summary.was_finished = true;
    return summary;
  }
  const LoraLayout lora(inputs.config, config.spec.lora_rank, config.spec.lora_scale(),
                        config.spec.lora_targets);
  const MemoryPlan plan = agree(comm, [&] {
    return plan_memory(inputs.config, lora, config.spec, config.execution, inputs.train.samples,
                       inputs.held_out.samples, placement.share.threads, placement.local_size,
                       memory_limit_bytes(config.execution), gpus.device.has_value());
  });
  for (const std::string& line : plan.lines()) log.line(line);
  const std::unique_ptr<NodeMemory> memory = agree(comm, [&] {
    return std::make_unique<NodeMemory>(*node, Weights::bytes(inputs.config), "model weights");
  });
  Weights weights(inputs.config, memory->block());
  agree(comm, [&] {
    if (memory->fills()) weights.load(ModelTensors(config.spec.model.path));
  });
  leave_where_stopped();
  check_ranks(comm, *node, log, config, inputs, weights, facts);

  report(log, "training data", config.spec.train.path, inputs.train);
  if (config.spec.held_out.given()) report(log, "held-out data", config.spec.held_out.path, inputs.held_out);
  for (const std::string& warning : weights.warnings()) log.warning(warning);
  if (!memory->warning().empty()) log.warning(memory->warning());

  const EngineParts parts{
      ctx,
      comm,
      config.execution,
      inputs.config,
      weights,
      lora,
      batch_limits(inputs.train.samples, inputs.held_out.samples, config.execution.batch_micro),
      {config.spec.lora_dropout, config.spec.seed_dropout}};
  GpuEngine on_gpu = gpus.device ? control.gpus->engine(parts, gpus) : GpuEngine();
  for (const std::string& line : on_gpu.lines) log.line(line);
  const std::unique_ptr<Trainer> trainer = agree(comm, [&] {
    std::unique_ptr<Engine> engine = std::move(on_gpu.engine);
    if (!engine)
      engine = std::make_unique<CpuEngine>(ctx, comm, inputs.config, weights, lora, parts.limits,
                                           parts.dropout, plan.n_recomputed);
    return std::make_unique<Trainer>(ctx, comm, config.spec, config.execution, inputs.config, lora,
                                     inputs.train.samples, inputs.held_out.samples, std::move(engine));
  });
  const std::string of_adapter =
      agree(comm, [&] { return first_adapter(trainer->adapter(), lora, config.spec); });
  if (!of_adapter.empty()) log.warning(cat("lora.init: ", of_adapter));
  log.line(cat(inputs.config.model_type, " with ", counted(inputs.config.n_layers, "layer"),
               "; adapter of rank ", config.spec.lora_rank, " on ",
               counted(lora.tensors().size() / 2, "module"),
               config.spec.lora_init.given() ? ", from " + config.spec.lora_init.path : "", "; ",
               counted(config.spec.train_updates, "update"), " of ",
               counted(config.spec.batch_global, "sample"), " on ", counted(comm.size(), "rank")));
  if (const std::string why = why_nothing_is_learned(config.spec); !why.empty()) log.warning(why);

  std::vector<std::string> hosts;
  for (std::string& host : comm.all_gather_text(placement.host))
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(std::move(host));
  std::unique_ptr<RunFolderLock> lock;
  std::string resumed_text;
  agree(comm, [&] {
    if (comm.rank() != 0) return;
    lock = std::make_unique<RunFolderLock>(folder, config.run.overwrite || resumes);
    beginning = find_beginning(folder, config);
    if (!resumes) empty_run_log(folder, *lock);
    log.open(folder.log());
    if (!lock->note().empty()) log.line(lock->note());
    for (const std::string& warning : beginning.warnings) log.warning(warning);
    for (const std::string& line : beginning.lines) log.line(line);
    if (beginning.kind == Beginning::Kind::kFinished)
      throw Error(ErrorKind::kInput,
                  cat("run.out: ", folder.path.string(), ": another job has finished the run meanwhile"));
    if (beginning.kind != Beginning::Kind::kResumed) return;
    go_back_to(folder, beginning.checkpoint, beginning.state.update);
    read_tensors(beginning.checkpoint, config.spec, *trainer);
    resumed_text =
        cat("after update ", beginning.state.update, " at ", utc_now(), " on ", counted(comm.size(), "rank"));
  });
  if (control.log_opened) control.log_opened(folder.log());
  share_beginning(comm, beginning);
  const CheckpointState* const begin =
      beginning.kind == Beginning::Kind::kResumed ? &beginning.state : nullptr;
  if (begin) share_tensors(comm, *begin, *trainer);
  const std::unique_ptr<Recorder> recorder = agree(comm, [&] {
    if (comm.rank() != 0) return std::unique_ptr<Recorder>();
    if (!begin) prepare_run_folder(folder, *lock);
    publish_file(folder.spec(), canonical_text(config.spec));
    publish_file(folder.execution(), canonical_text(config.execution));
    std::map<std::string, std::string> provenance = facts;
    provenance["arithmetic"] = "native";
    provenance["orchestration"] = "tandem";
    provenance["runtime"] = gpus.device ? "tandem/cuda" : "tandem/cpu";
    if (gpus.device) provenance["gpu_versions"] = versions_text(gpus.versions);
    if (!gpus.lines.empty()) provenance["devices"] = joined(gpus.lines, "; ");
    provenance["start"] = utc_now();
    provenance["ranks"] = cat(comm.size());
    // So that a stored update can be replayed; where they lie is no part of the spec.
    for (const auto& [key, input] : config.spec.inputs())
      provenance[cat("path.", key)] = std::filesystem::absolute(input->path).string();
    provenance["threads"] = cat(placement.share.threads);
    provenance["hosts"] = joined(hosts, ",");
    auto made = std::make_unique<Recorder>(
        folder, config, inputs, weights, lora, trainer->probe(), provenance,
        begin ? beginning.checkpoint / folder.trajectory().filename() : std::filesystem::path());
    if (begin) made->resumed(resumed_text);
    made->publish();  // so a place that takes no files is known before the first update
    return made;
  });

  std::unique_ptr<Auditor> auditor;
  if (mirrored) {
    const std::vector<std::uint8_t> mirror_bytes =
        begin ? bytes_of_mirror(comm, beginning.checkpoint, mirror_rank(config.execution, comm.size()))
              : std::vector<std::uint8_t>();
    auditor = agree(comm, [&] {
      return std::make_unique<Auditor>(
          comm, config.execution, log, weights, *trainer,
          beside_mirror ? std::make_unique<MirrorThread>(mirror_options(config, mirror_cpus),
                                                         mirror_state(mirror_bytes))
                        : nullptr,
          recorder ? std::make_unique<MirrorRecorder>(
                         recorder->writer(), tensor_sizes(lora),
                         free_run_file(config, folder, facts, beginning.checkpoint, resumed_text),
                         [&](const std::string& text, bool warning) {
                           warning ? log.warning(text) : log.line(text);
                         })
                   : nullptr,
          control.stop);
    });
    auditor->begin(begin);
  }

  trainer->stop_where(control.stop);
  RunSummary summary;
  try {
    summary = Loop(config, comm, *node, placement.host, log, *trainer, recorder.get(), auditor.get(),
                   inputs.held_out.samples.size() > 0, control, begin)
                  .run();
  } catch (...) {
    if (auditor) auditor->save_after_failure();
    if (recorder) recorder->save_after_failure();
    throw;
  }
  agree(comm, [&] {
    if (recorder) recorder->finish(utc_now());
  });
  summary.n_train = inputs.train.samples.size();
  summary.n_held_out = inputs.held_out.samples.size();
  log.line(cat(formatted(
      "%.1f s of updates, %.0f tokens/s; peak memory %.2f GiB in the largest rank, %.2f GiB in the largest "
      "node",
      summary.seconds, static_cast<double>(summary.tokens) / summary.seconds,
      static_cast<double>(summary.rank_bytes) / 0x1p30, static_cast<double>(summary.node_bytes) / 0x1p30)));
  return summary;
}

}  // namespace tandem
