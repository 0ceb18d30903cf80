#include "src/audit/mirror_thread.hpp"

#include <chrono>
#include <cmath>
#include <utility>

#include "comm/topology.hpp"
#include "src/audit/free_run.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// A row of /audit without an update's numbers.
MirrorMessage bare_message(std::int64_t step, Verdict verdict, std::string note) {
  AuditOutcome outcome;
  outcome.step = step;
  outcome.loss_error = outcome.norm_error = std::nan("");
  outcome.verdict = verdict;
  outcome.note = std::move(note);
  return audit_message(outcome, nullptr);
}

MirrorMessage skipped_message(std::int64_t step) {
  return bare_message(step, Verdict::kSkipped, "the mirror was behind");
}

}  // namespace

MirrorThread::MirrorThread(MirrorOptions options) : options_(std::move(options)) {
  options_.inputs.cancelled = &given_up_;
  thread_ = std::thread([this] { run(); });
}

MirrorThread::~MirrorThread() {
  given_up_ = true;
  close();
  thread_.join();
}

void MirrorThread::run() {
  try {
    if (!options_.cpus.empty()) pin_this_thread(options_.cpus);
    const mirror::Mirror mirror(options_.inputs);
    work(mirror);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!given_up_) failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  ready_ = done_ = true;
  changed_.notify_all();
}

void MirrorThread::work(const mirror::Mirror& mirror) {
  for (const std::string& warning : mirror.warnings()) post(line_message("mirror: " + warning, true));
  tell_costs(mirror);
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    changed_.notify_all();
  }
  if (options_.audits) {
    thresholds_ = calibrate(mirror, options_.precision, options_.calibration);
    if (!thresholds_->from_file) post(line_message("mirror: thresholds calibrated", false));
    if (!thresholds_->not_kept.empty())
      post(line_message("mirror: thresholds are not kept (mirror.calibration): " + thresholds_->not_kept,
                        true));
  }
  std::optional<FreeRun> free;
  if (options_.free_run)
    free.emplace(mirror,
                 FreeRun::Options{options_.snapshot_every, options_.snapshot_what, options_.observe_every},
                 [this](MirrorMessage message) { post(std::move(message)); });
  while (!given_up_) {
    const bool more = free && !free->ended();
    if (const auto job = next_job(!more))
      audit(mirror, *job);
    else if (const auto weights = next_weights())
      look_at_weights(mirror, *weights);
    else if (more)
      free->advance();
    else
      break;
  }
  post(fact_message("mirror_audits", static_cast<double>(audits_)));
  post(fact_message("mirror_thresholds_measured_again", static_cast<double>(measured_again_)));
  post(fact_message("mirror_audits_skipped", static_cast<double>(skipped_)));
  if (audits_ > 0)
    post(fact_message("mirror_seconds_per_audit", audit_seconds_ / static_cast<double>(audits_)));
  post(fact_message("mirror_audits_waiting_at_most", static_cast<double>(most_waiting_)));
}

void MirrorThread::audit(const mirror::Mirror& mirror, const UpdateJob& job) {
  const double begin = now_s();
  const AuditOutcome outcome = audit_update(mirror, job, options_.precision, *thresholds_, measured_again_);
  audit_seconds_ += now_s() - begin;
  ++audits_;
  const bool keep = outcome.verdict != Verdict::kPass && snapshots_left_ > 0;
  if (keep) --snapshots_left_;
  if (job.base_tensor) post(base_weights_message(job.step, std::span(&*job.base_tensor, 1)));
  post(audit_message(outcome, keep ? &job : nullptr));
  const std::lock_guard lock(mutex_);
  working_ = false;
  for (const std::int64_t step : std::exchange(skipped_after_work_, {}))
    messages_.push_back(skipped_message(step));
  end_with(outcome.verdict);
}

void MirrorThread::look_at_weights(const mirror::Mirror& mirror, const BaseWeights& weights) {
  const std::string text = differing_weights(mirror, weights.tensors);
  post(base_weights_message(weights.step, weights.tensors));
  if (text.empty()) return;
  post(bare_message(weights.step, Verdict::kExact, text));
  const std::lock_guard lock(mutex_);
  end_with(Verdict::kExact);
}

void MirrorThread::end_with(Verdict verdict) {
  const bool ends = policy_.ends_with(verdict);
  stop_ = stop_ || (ends && options_.stop_on_mismatch);
  changed_.notify_all();
}

void MirrorThread::tell_costs(const mirror::Mirror& mirror) {
  const double rate = mirror.flops_per_second() * options_.inputs.threads;
  std::string text = cat("mirror: ", static_cast<std::int64_t>(rate / 1e9), " GFLOP/s in float64");
  const double update = mirror.update_flops(1) / rate;
  const auto seconds = [](double s) { return cat(std::round(s * 100) / 100, " s"); };
  if (options_.audits) {
    const std::int64_t n = mirror.updates() / options_.every;
    const double audit = update * options_.share_of_update;
    text += cat("; about ", seconds(audit), " an audit, ", n, " audits, ",
                seconds(audit * static_cast<double>(n)), " in all");
    post(fact_message("mirror_seconds_per_audit_expected", audit));
  }
  if (options_.free_run) {
    const auto n_eval = mirror.held_out_samples().empty() ? 0 : 3 + mirror.updates() / mirror.eval_every();
    const double all = update * static_cast<double>(mirror.updates()) +
                       mirror.evaluation_flops() / rate * static_cast<double>(n_eval);
    text += cat("; free run about ", seconds(all));
    post(fact_message("mirror_seconds_free_run_expected", all));
  }
  post(line_message(text, false));
}

void MirrorThread::post(MirrorMessage message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  changed_.notify_all();
}

std::optional<UpdateJob> MirrorThread::next_job(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [&] { return !jobs_.empty() || !weights_.empty() || closed_ || given_up_; });
  if (jobs_.empty() || (!weights_.empty() && weights_.front().step < jobs_.front().job.step))
    return std::nullopt;
  UpdateJob job = std::move(jobs_.front().job);
  skipped_after_work_ = std::move(jobs_.front().skipped_after);
  jobs_.pop_front();
  working_ = true;
  changed_.notify_all();
  return job;
}

std::optional<BaseWeights> MirrorThread::next_weights() {
  const std::lock_guard lock(mutex_);
  if (weights_.empty()) return std::nullopt;
  BaseWeights weights = std::move(weights_.front());
  weights_.pop_front();
  return weights;
}

void MirrorThread::wait_until_ready() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_; });
  if (failure_) std::rethrow_exception(failure_);
}

bool MirrorThread::can_take() {
  const std::lock_guard lock(mutex_);
  return jobs_.size() < kWaiting || done_;
}

void MirrorThread::wait_until_it_can_take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() < kWaiting || done_; });
}

void MirrorThread::give(UpdateJob job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back({std::move(job), {}});
  most_waiting_ = std::max(most_waiting_, jobs_.size() + (working_ ? 1 : 0));
  changed_.notify_all();
}

void MirrorThread::give_weights(BaseWeights weights) {
  const std::lock_guard lock(mutex_);
  weights_.push_back(std::move(weights));
  changed_.notify_all();
}

void MirrorThread::note_skipped(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  ++skipped_;
  if (!jobs_.empty())
    jobs_.back().skipped_after.push_back(step);
  else if (working_)
    skipped_after_work_.push_back(step);
  else
    messages_.push_back(skipped_message(step));
}

void MirrorThread::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

MirrorThread::Mail MirrorThread::take(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !messages_.empty() || done_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  Mail mail;
  mail.messages = std::exchange(messages_, {});
  mail.stop = stop_;
  mail.done = done_;
  return mail;
}

}  // namespace tandem
