#include "src/train/auditor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/checkpoints.hpp"

namespace tandem {

namespace {

// Ranks that wait for the mirror sleep this long between looks.
constexpr double kLook_s = 0.2;

FlatTensors in_digest_order(const Trainer& trainer, std::span<const float> flat) {
  FlatTensors all;
  all.reserve(flat.size());
  for (const std::span<const float> tensor : trainer.lora().spans(flat))
    all.insert(all.end(), tensor.begin(), tensor.end());
  return all;
}

}  // namespace

int mirror_rank(const Execution& execution, int ranks) {
  if (execution.mirror_rank >= ranks)
    throw Error(ErrorKind::kUsage,
                cat("mirror.rank = ", execution.mirror_rank, ": the run has ranks 0 to ", ranks - 1));
  return execution.mirror_rank < 0 ? ranks - 1 : static_cast<int>(execution.mirror_rank);
}

MirrorOptions mirror_options(const Config& config, std::vector<int> cpus) {
  const auto given = [](const RunSpec::Input& input) {
    return input.given() ? std::optional<std::filesystem::path>(input.path) : std::nullopt;
  };
  const Execution& execution = config.execution;
  MirrorOptions options;
  options.inputs.spec_text = canonical_text(config.spec);
  options.inputs.model = config.spec.model.path;
  options.inputs.train = config.spec.train.path;
  options.inputs.held_out = given(config.spec.held_out);
  options.inputs.lora_init = given(config.spec.lora_init);
  options.inputs.threads = static_cast<int>(execution.mirror_threads);
  options.audits = execution.audits();
  options.free_run = execution.free_run();
  options.precision = execution.precision;
  options.calibration = config.run.calibration.path;
  options.every = execution.mirror_every;
  if (execution.mirror_scope == "microbatch")
    options.share_of_update = std::min(
        1.0, static_cast<double>(execution.batch_micro) / static_cast<double>(config.spec.batch_global));
  options.stop_on_mismatch = execution.mirror_on_mismatch == "stop";
  options.snapshot_every = execution.snapshot_every;
  options.snapshot_what = execution.snapshot_what;
  options.observe_every = execution.observe_every;
  options.inputs.probe = execution.observe_probe;
  options.cpus = std::move(cpus);
  return options;
}

Auditor::Auditor(Communicator& comm, const Execution& execution, RunLog& log, const Weights& weights,
                 Trainer& trainer, std::unique_ptr<MirrorThread> thread,
                 std::unique_ptr<MirrorRecorder> recorder, std::function<bool()> stop)
    : comm_(comm),
      execution_(execution),
      log_(log),
      weights_(weights),
      trainer_(trainer),
      thread_(std::move(thread)),
      recorder_(std::move(recorder)),
      stop_(std::move(stop)),
      rank_(mirror_rank(execution, comm.size())) {}

void Auditor::begin(const CheckpointState* resumed) {
  agree(comm_, [&] {
    if (here()) thread_->wait_until_ready([this] { return stopped(); });
  });
  if (!resumed) {
    give_base_weights(0);
  } else {
    // They were loaded anew; the trajectory keeps the rows of an unbroken run.
    give_base_weights(resumed->update, false);
    n_audits_ = resumed->audits_begun;
    closed_ = resumed->base_weights_closed;
    if (audited(resumed->update + 1)) left_ = resumed->checksums;
  }
  exchange(0.0);
}

std::vector<std::uint8_t> Auditor::save(CheckpointState& state) {
  state.audits_begun = n_audits_;
  state.base_weights_closed = closed_;
  MirrorState mirror;
  exchange(0.0, &mirror);
  std::vector<std::uint8_t> bytes;
  agree(comm_, [&] {
    if (here()) bytes = mirror_state_bytes(mirror);
    if (recorder_) recorder_->publish();
  });
  std::uint64_t size = bytes.size();
  comm_.broadcast(std::as_writable_bytes(std::span(&size, 1)), rank_);
  if (comm_.rank() == 0) bytes.resize(size);
  comm_.transfer(std::as_writable_bytes(std::span(bytes)), rank_, 0);
  return bytes;
}

void Auditor::give_base_weights(std::int64_t step, bool recorded) {
  if (!here() || !execution_.audits()) return;
  BaseWeights all{step, {}, recorded};
  for (std::size_t i = 0; i < weights_.n_tensors(); ++i) all.tensors.push_back(in_memory(i));
  thread_->give_weights(std::move(all));
}

BaseTensorInMemory Auditor::in_memory(std::size_t i) const {
  return {static_cast<std::int64_t>(i), weights_.tensor_name(i), trainer_.base_digest(i)};
}

void Auditor::before_gradient(std::int64_t t, Trainer& trainer) {
  auditing_ = audited(t);
  if (!auditing_) return;
  constexpr std::byte kStopped{2};
  std::byte taken{1};
  if (here()) {
    try {
      if (execution_.mirror_when_behind == "wait")
        thread_->wait_until_it_can_take([this] { return stopped(); });
      taken = std::byte{thread_->can_take()};
      skipped_ = taken == std::byte{0};
    } catch (const Error&) {
      taken = kStopped;
    }
  }
  comm_.broadcast(std::span(&taken, 1), rank_);
  if (taken == kStopped) throw AgreedError(ErrorKind::kStopped, "stopped by a signal", rank_);
  auditing_ = taken != std::byte{0};
  if (!auditing_) return;
  if (execution_.mirror_scope == "microbatch") trainer.watch(n_audits_ % trainer.n_micro_batches(t));
  if (!here()) return;
  job_ = {};
  job_.step = t;
  job_.steps_before = trainer.steps_made();
}

void Auditor::before_step(Trainer& trainer, const UpdateResult& result) {
  if (!auditing_) return;
  if (execution_.mirror_scope == "microbatch") {
    const WatchedMicroBatch& watched = trainer.watched();
    double nll = watched.nll;
    comm_.transfer(std::as_writable_bytes(std::span(&nll, 1)), watched.owner, rank_);
    comm_.transfer(std::as_writable_bytes(watched.gradient), watched.owner, rank_);
    if (here()) {
      job_.scope = AuditScope::kMicroBatch;
      job_.micro_batch = watched.index;
      job_.micro_begin = watched.begin;
      job_.micro_end = watched.end;
      job_.micro_nll = nll;
      job_.micro_gradient = in_digest_order(trainer, watched.gradient);
    }
  }
  if (!here()) return;
  job_.sample_ids.assign(result.sample_ids.begin(), result.sample_ids.end());
  for (const std::int64_t id : result.sample_ids)
    job_.sample_digests.push_back(trainer.training_samples().digest(id));
  job_.config = weights_.config().echo();
  job_.state_kept = !left_ || *left_ == state_checksums(trainer);
  job_.n_targets = result.n_targets;
  job_.loss = result.loss;
  job_.norm = result.grad_norm;
  job_.clip = result.clip;
  job_.lr = result.lr;
  job_.adapter = in_digest_order(trainer, std::as_const(trainer).adapter());
  job_.m = in_digest_order(trainer, std::as_const(trainer).m());
  job_.v = in_digest_order(trainer, std::as_const(trainer).v());
  job_.gradient = in_digest_order(trainer, std::as_const(trainer).gradient());
  job_.base_tensor = in_memory(static_cast<std::size_t>(n_audits_) % weights_.n_tensors());
}

void Auditor::after_step(std::int64_t t, Trainer& trainer) {
  if (auditing_) {
    ++n_audits_;
    if (here()) {
      job_.adapter_after = in_digest_order(trainer, std::as_const(trainer).adapter());
      job_.m_after = in_digest_order(trainer, std::as_const(trainer).m());
      job_.v_after = in_digest_order(trainer, std::as_const(trainer).v());
      thread_->give(std::exchange(job_, {}));
    }
    auditing_ = false;
  }
  // Not before the update is made: one that is dropped was not skipped.
  if (std::exchange(skipped_, false)) thread_->note_skipped(t);
  left_.reset();
  if (here() && audited(t + 1)) left_ = state_checksums(trainer);
  exchange(0.0);
}

void Auditor::after_evaluation(std::int64_t t, double nll_sum, double nll_sum_off, Trainer& trainer) {
  if (nll_sum != nll_sum_off || !adapter_matters(trainer)) return;
  const std::string text =
      cat("evaluation after update ", t,
          ": the held-out loss is, to the bit, that without the adapter, which is not zero");
  if (execution_.mirror_on_mismatch == "stop") throw AgreedError(ErrorKind::kDisagreement, text, 0);
  log_.warning(text);
}

bool Auditor::adapter_matters(Trainer& trainer) const {
  // A thousand times what float32 leaves of a module's weights, so that rounding cannot hide it.
  constexpr double kShare = 1e-4;
  constexpr std::string_view kA = ".lora_A.weight";
  const auto norms = trainer.ba_norms();
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (norms[i] == 0.0) continue;  // of all, before the first update
    const std::string& a = trainer.lora().tensors()[2 * i].name;
    const std::string weight = cat(std::string_view(a).substr(0, a.size() - kA.size()), ".weight");
    for (std::size_t w = 0; w < weights_.n_tensors(); ++w) {
      if (weights_.tensor_name(w) != weight) continue;
      double square = 0.0;
      for (const float x : weights_.tensor(w)) square += static_cast<double>(x) * x;
      if (norms[i] > kShare * std::sqrt(square)) return true;
    }
  }
  return false;
}

bool Auditor::exchange(double wait_s, MirrorState* state) {
  struct Size {
    std::uint64_t bytes = 0, stop = 0, done = 0;
  } size;
  std::vector<std::uint8_t> bytes;
  agree(comm_, [&] {
    if (!here()) return;
    const MirrorThread::Mail mail = thread_->take(wait_s, state);
    if (!mail.messages.empty()) {
      nlohmann::json all = nlohmann::json::array();
      for (const MirrorMessage& message : mail.messages) all.push_back(nlohmann::json::binary(message));
      bytes = nlohmann::json::to_cbor(all);
    }
    size = {bytes.size(), mail.stop, mail.done};
  });
  comm_.broadcast(std::as_writable_bytes(std::span(&size, 1)), rank_);
  if (size.bytes > 0) {
    if (comm_.rank() == 0) bytes.resize(size.bytes);
    comm_.transfer(std::as_writable_bytes(std::span(bytes)), rank_, 0);
    agree(comm_, [&] {
      if (!recorder_) return;
      for (const auto& message : nlohmann::json::from_cbor(bytes)) recorder_->apply(message.get_binary());
    });
  }
  if (size.stop != 0 && !state)
    throw AgreedError(
        ErrorKind::kDisagreement,
        "the mirror disagrees: the last warning says with what; the state of an update that it names "
        "is in native.snapshots (tandem audit replays it)",
        0);
  return size.done != 0;
}

void Auditor::finish(std::int64_t last, const std::function<void()>& while_waiting) {
  if (!closed_) give_base_weights(last);
  closed_ = true;
  if (here()) thread_->close();
  bool told = false;
  while (!exchange(kLook_s)) {
    if (!std::exchange(told, true)) log_.line("training has ended; waiting for the mirror");
    if (while_waiting) while_waiting();
    if (!here()) std::this_thread::sleep_for(std::chrono::duration<double>(kLook_s));
  }
}

void Auditor::save_after_failure() noexcept {
  try {
    if (recorder_) recorder_->publish();
  } catch (const std::exception&) {
    // The earlier publication stands.
  }
}

}  // namespace tandem
