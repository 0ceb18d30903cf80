#include "src/train/loop.hpp"

#include <cmath>

#include "comm/peak_memory.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"
#include "src/train/format_numbers.hpp"

namespace tandem {

Loop::Loop(const Config& config, Communicator& comm, Communicator& node, RunLog& log, Trainer& trainer,
           Recorder* recorder, Auditor* auditor, bool evaluates)
    : config_(config),
      comm_(comm),
      node_(node),
      log_(log),
      trainer_(trainer),
      recorder_(recorder),
      auditor_(auditor),
      evaluates_(evaluates) {}

RunSummary Loop::run() {
  const std::int64_t last = config_.spec.train_updates;
  if (evaluates_) {
    off_ = trainer_.evaluate(false);
    if (recorder_) recorder_->loss_adapter_off(off_.loss(), std::nan(""));
    evaluate(0);
  }
  for (std::int64_t t = 1; t <= last; ++t) {
    update(t);
    if (evaluated(t)) evaluate(t);
  }
  if (evaluates_) {
    const double off_after = trainer_.evaluate(false).loss();
    if (recorder_) recorder_->loss_adapter_off(off_.loss(), off_after);
  } else if (recorder_) {
    recorder_->save_adapter(trainer_);
  }
  if (auditor_) auditor_->finish(last);
  const PeakMemory memory = gather_peak_memory(comm_, node_);
  summary_.updates = last;
  summary_.rank_bytes = memory.rank_bytes;
  summary_.node_bytes = memory.node_bytes;
  return summary_;
}

bool Loop::evaluated(std::int64_t t) const {
  return evaluates_ && (t % config_.spec.eval_every == 0 || t == config_.spec.train_updates);
}

void Loop::update(std::int64_t t) {
  const double start = now_s();
  if (auditor_) auditor_->before_gradient(t, trainer_);
  UpdateResult result = trainer_.compute_gradient(t);
  const std::int64_t every = config_.execution.snapshot_every;
  if (recorder_ && every > 0 && t % every == 0) recorder_->snapshot(t, trainer_);
  if (auditor_) auditor_->before_step(trainer_, result);
  trainer_.step(t, result, evaluated(t));
  const double seconds = now_s() - start;
  summary_.seconds += seconds;
  summary_.tokens += result.n_tokens;
  summary_.targets += result.n_targets;
  if (recorder_) recorder_->update(t, result, trainer_, seconds);
  if (auditor_) auditor_->after_step(t, trainer_);
  const bool line = t == 1 || t % config_.run.log_every == 0 || t == config_.spec.train_updates;
  const std::string text = progress_text(t, result);
  if (log_.terminal())
    log_.progress(text);
  else if (line)
    log_.line(text);
  if (result.n_targets == 0) log_.warning(cat("update ", t, " has no token to score: no step made"));
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
  if (auditor_) auditor_->after_evaluation(t, result.nll_sum, off_.nll_sum, trainer_);
}

}  // namespace tandem
