#include "src/train/loop.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "comm/peak_memory.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"
#include "src/train/checkpoints.hpp"
#include "src/train/format_numbers.hpp"

namespace tandem {

Loop::Loop(const Config& config, Communicator& comm, Communicator& node, const std::string& host, RunLog& log,
           Trainer& trainer, Recorder* recorder, Auditor* auditor, bool evaluates, const RunControl& control,
           const CheckpointState* begin)
    : config_(config),
      comm_(comm),
      node_(node),
      log_(log),
      trainer_(trainer),
      recorder_(recorder),
      auditor_(auditor),
      evaluates_(evaluates),
      control_(control),
      slow_(comm.rank(), host),
      saved_s_(now_s()) {
  at_.spec_text = canonical_text(config.spec);
  at_.execution_text = canonical_text(config.execution);
  if (!begin) return;
  at_.update = begin->update;
  at_.evaluated = begin->evaluated;
  at_.loss_update = begin->loss_update;
  saved_ = {at_.update, at_.evaluated};
  off_ = {begin->off_nll_sum, begin->off_tokens};
  summary_.seconds = begin->seconds;
  summary_.tokens = begin->tokens;
  summary_.targets = begin->targets;
  summary_.loss_before = begin->loss_before;
  summary_.loss_after = begin->loss_after;
}

RunSummary Loop::run() {
  try {
    updates_and_evaluations();
  } catch (const AgreedError& error) {
    end_early(error);
  }
  const PeakMemory memory = gather_peak_memory(comm_, node_);
  summary_.updates = config_.spec.train_updates;
  summary_.rank_bytes = memory.rank_bytes;
  summary_.node_bytes = memory.node_bytes;
  return summary_;
}

void Loop::updates_and_evaluations() {
  const std::int64_t last = config_.spec.train_updates;
  if (evaluates_ && at_.update == 0 && !at_.evaluated) {
    off_ = trainer_.evaluate(false);
    if (recorder_) recorder_->loss_adapter_off(off_.loss(), std::nan(""));
  }
  if (evaluated(at_.update) && !at_.evaluated) evaluate(at_.update);
  while (at_.update < last) {
    const std::int64_t t = at_.update + 1;
    const bool save_now = update(t);
    if (evaluated(t)) evaluate(t);
    if (save_now && t < last) save();
  }
  if (evaluates_) {
    const double off_after = trainer_.evaluate(false).loss();
    if (recorder_) recorder_->loss_adapter_off(off_.loss(), off_after);
  } else if (recorder_) {
    recorder_->save_adapter(trainer_);
  }
  name_slow_phases();
  if (auditor_) auditor_->finish(last, [this] { save_if_due_while_waiting(); });
}

bool Loop::due(std::int64_t t) const {
  if (comm_.rank() != 0) return false;
  const double minutes = config_.run.checkpoint_minutes;
  const std::int64_t every = config_.run.checkpoint_every;
  return (every > 0 && t % every == 0) || (minutes > 0.0 && now_s() - saved_s_ >= 60.0 * minutes);
}

void Loop::save_if_due_while_waiting() {
  enum : unsigned char { kGoOn, kSave, kStop };
  const double minutes = config_.run.checkpoint_minutes;
  const bool due = comm_.rank() == 0 && minutes > 0.0 && now_s() - saved_s_ >= 60.0 * minutes;
  const auto mine = static_cast<unsigned char>(control_.stop && control_.stop() ? kStop
                                               : due                            ? kSave
                                                                                : kGoOn);
  const std::vector<unsigned char> all = comm_.all_gather_value(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] == kStop)
      throw AgreedError(ErrorKind::kStopped, "stopped by a signal", static_cast<int>(rank));
  if (all[0] == kSave) {
    saved_.reset();  // the mirror has got further
    save();
  }
}

void Loop::save() {
  const double start = now_s();
  CheckpointState state = at_;
  state.steps_made = trainer_.steps_made();
  state.seconds = summary_.seconds;
  state.tokens = summary_.tokens;
  state.targets = summary_.targets;
  state.loss_before = summary_.loss_before;
  state.loss_after = summary_.loss_after;
  state.off_nll_sum = off_.nll_sum;
  state.off_tokens = off_.n_tokens;
  const auto norms = std::as_const(trainer_).update_norms();
  state.update_norms.assign(norms.begin(), norms.end());
  std::vector<std::uint8_t> mirror;
  if (auditor_) mirror = auditor_->save(state);
  save_failed_ = true;
  agree(comm_, [&] {
    if (!recorder_) return;
    state.checksums = state_checksums(trainer_);
    recorder_->publish();
    write_checkpoint(recorder_->folder(), config_, std::move(state), trainer_, mirror);
  });
  save_failed_ = false;
  saved_ = {at_.update, at_.evaluated};
  saved_s_ = now_s();
  log_.line(
      cat("checkpoint after update ", at_.update, formatted(" saved in %.0f ms", 1e3 * (saved_s_ - start))));
}

void Loop::end_early(const AgreedError& error) {
  const bool stopped = error.kind() == ErrorKind::kStopped;
  const std::string where = cat(config_.run.out, "/checkpoints/", at_.update);
  if (sound_ && !save_failed_) {
    try {
      save();
    } catch (const AgreedError& of_save) {
      if (stopped)
        throw AgreedError(of_save.kind(), cat(of_save.what(), " (after the signal to stop)"), of_save.rank());
      log_.warning(cat("no checkpoint of the last update: ", of_save.what()));
    }
  }
  if (!stopped) throw error;
  throw AgreedError(
      ErrorKind::kStopped,
      cat("stopped by a signal after update ", at_.update, " of ", config_.spec.train_updates, ", saved in ",
          where, control_.command.empty() ? "" : "; go on with: ", control_.command),
      0);
}

bool Loop::evaluated(std::int64_t t) const {
  return evaluates_ && (t % config_.spec.eval_every == 0 || t == config_.spec.train_updates);
}

bool Loop::update(std::int64_t t) {
  comm_.at_update(t);
  const double start = now_s();
  if (auditor_) auditor_->before_gradient(t, trainer_);
  UpdateResult result = trainer_.compute_gradient(t);
  const std::int64_t every = config_.execution.snapshot_every;
  if (recorder_ && every > 0 && t % every == 0) recorder_->snapshot(t, trainer_);
  if (auditor_) auditor_->before_step(trainer_, result);
  sound_ = false;
  trainer_.step(t, result, evaluated(t), due(t), slow_.any());
  const double end = now_s(), seconds = end - start;
  if (result.raised) name_slow_phases();
  slow_.update(t, trainer_.times(), {seconds, result.n_tokens}, end);
  summary_.seconds += seconds;
  summary_.tokens += result.n_tokens;
  summary_.targets += result.n_targets;
  if (recorder_) recorder_->update(t, result, trainer_, seconds);
  at_.update = t;
  at_.evaluated = false;
  sound_ = true;
  if (auditor_) auditor_->after_step(t, trainer_);
  const bool line = t == 1 || t % config_.run.log_every == 0 || t == config_.spec.train_updates;
  log_.progress(progress_text(t, result), line);
  if (result.n_targets == 0) log_.warning(cat("update ", t, " has no token to score: no step made"));
  return result.noted;
}

void Loop::name_slow_phases() {
  for (const SlowRow& row : SlowPhases::read(comm_.all_gather_text(slow_.take()))) {
    log_.warning(SlowPhases::line(row));
    if (recorder_) recorder_->writer().append_slow(row);
  }
}

std::string Loop::progress_text(std::int64_t t, const UpdateResult& result) const {
  const std::int64_t last = config_.spec.train_updates;
  const double left = summary_.seconds / static_cast<double>(t) * static_cast<double>(last - t);
  return cat(
      "update ", t, "/", last,
      formatted("  loss %.4f  grad norm %.3g  lr %.3g  %.0f tokens/s  %.0f s left", result.loss,
                result.grad_norm, result.lr, static_cast<double>(summary_.tokens) / summary_.seconds, left));
}

void Loop::evaluate(std::int64_t t) {
  const double start = now_s();
  const EvalResult result = trainer_.evaluate(true);
  const double seconds = now_s() - start;
  const PeakMemory memory = gather_peak_memory(comm_, node_);
  if (recorder_) recorder_->evaluation(t, result, trainer_, seconds, memory.rank_bytes);
  log_.line(cat("evaluation after update ", t,
                formatted(": held-out loss %.6f (%lld tokens, %.1f s)", result.loss(),
                          static_cast<long long>(result.n_tokens), seconds)));
  if (!summary_.loss_before) summary_.loss_before = result.loss();
  summary_.loss_after = result.loss();
  slow_.evaluation(t, trainer_.times(), start + seconds);
  at_.evaluated = true;
  at_.loss_update = t;
  if (auditor_) auditor_->after_evaluation(t, result.nll_sum, off_.nll_sum, trainer_);
}

}  // namespace tandem
