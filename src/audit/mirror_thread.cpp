#include "src/audit/mirror_thread.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "comm/topology.hpp"
#include "src/audit/free_run.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
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

MirrorThread::MirrorThread(MirrorOptions options, MirrorState begin)
    : options_(std::move(options)), state_(std::move(begin)), policy_(state_.missed) {
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
  if (options_.audits && !state_.thresholds) {
    Thresholds found = calibrate(mirror, options_.precision, options_.calibration);
    if (!found.from_file) post(line_message("mirror: thresholds calibrated", false));
    if (!found.not_kept.empty())
      post(line_message("mirror: thresholds are not kept (mirror.calibration): " + found.not_kept, true));
    const std::lock_guard lock(mutex_);
    state_.thresholds = std::move(found);
  }
  std::optional<FreeRun> free;
  if (options_.free_run)
    free.emplace(mirror,
                 FreeRun::Options{options_.snapshot_every, options_.snapshot_what, options_.observe_every},
                 state_.free_run);
  // A file that is continued: what does not change is told again, to be compared.
  if (free && state_.free_run && !free->ended()) post(start_message(mirror));
  while (!given_up_) {
    const bool more = free && !free->ended();
    if (const auto job = next_job(!more))
      audit(mirror, *job);
    else if (const auto weights = next_weights())
      look_at_weights(mirror, *weights);
    else if (more)
      advance(*free);
    else
      break;
  }
  const auto count = [&](const char* name, std::int64_t n) {
    post(fact_message(name, static_cast<double>(n)));
  };
  count("mirror_audits", state_.audits);
  count("mirror_thresholds_measured_again", state_.measured_again);
  count("mirror_audits_skipped", state_.skipped);
  if (state_.audits > 0)
    post(fact_message("mirror_seconds_per_audit", state_.audit_seconds / static_cast<double>(state_.audits)));
  count("mirror_audits_waiting_at_most", state_.most_waiting);
}

void MirrorThread::advance(FreeRun& free) {
  std::vector<MirrorMessage> told = free.advance();
  const std::lock_guard lock(mutex_);
  state_.free_run = free.state();
  for (MirrorMessage& message : told) messages_.push_back(std::move(message));
  changed_.notify_all();
}

void MirrorThread::audit(const mirror::Mirror& mirror, const UpdateJob& job) {
  const double begin = now_s();
  Thresholds thresholds = *state_.thresholds;
  std::int64_t measured_again = 0;
  const AuditOutcome outcome = audit_update(mirror, job, options_.precision, thresholds, measured_again);
  const bool keep = outcome.verdict != Verdict::kPass && state_.snapshots_left > 0;
  std::vector<MirrorMessage> told;
  if (job.base_tensor) told.push_back(base_weights_message(job.step, std::span(&*job.base_tensor, 1)));
  told.push_back(audit_message(outcome, keep ? &job : nullptr));

  const std::lock_guard lock(mutex_);
  for (const std::int64_t step : state_.jobs.front().skipped_after) told.push_back(skipped_message(step));
  state_.jobs.pop_front();
  state_.thresholds = std::move(thresholds);
  state_.measured_again += measured_again;
  state_.audit_seconds += now_s() - begin;
  ++state_.audits;
  if (keep) --state_.snapshots_left;
  for (MirrorMessage& message : told) messages_.push_back(std::move(message));
  working_ = false;
  end_with(outcome.verdict);
}

void MirrorThread::look_at_weights(const mirror::Mirror& mirror, const BaseWeights& weights) {
  const std::string text = differing_weights(mirror, weights.tensors);
  const std::lock_guard lock(mutex_);
  if (weights.recorded || !text.empty())
    messages_.push_back(base_weights_message(weights.step, weights.tensors));
  if (!text.empty()) messages_.push_back(bare_message(weights.step, Verdict::kExact, text));
  state_.weights.pop_front();
  if (!text.empty()) end_with(Verdict::kExact);
  changed_.notify_all();
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

std::shared_ptr<const UpdateJob> MirrorThread::next_job(bool wait) {
  std::unique_lock lock(mutex_);
  const auto& jobs = state_.jobs;
  const auto& weights = state_.weights;
  if (wait) changed_.wait(lock, [&] { return !jobs.empty() || !weights.empty() || closed_ || given_up_; });
  if (jobs.empty() || (!weights.empty() && weights.front().step < jobs.front().job->step)) return nullptr;
  working_ = true;
  changed_.notify_all();
  return jobs.front().job;
}

std::optional<BaseWeights> MirrorThread::next_weights() {
  const std::lock_guard lock(mutex_);
  if (state_.weights.empty()) return std::nullopt;
  return state_.weights.front();
}

template <class Condition>
void MirrorThread::wait(const Interrupted& interrupted, Condition condition) {
  constexpr std::chrono::milliseconds kLook{100};
  std::unique_lock lock(mutex_);
  if (!interrupted) return changed_.wait(lock, condition);
  while (!changed_.wait_for(lock, kLook, condition))
    if (interrupted()) throw Error(ErrorKind::kStopped, "stopped by a signal");
}

void MirrorThread::wait_until_ready(const Interrupted& interrupted) {
  wait(interrupted, [&] { return ready_; });
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool MirrorThread::can_take() {
  const std::lock_guard lock(mutex_);
  return state_.jobs.size() < kWaiting + (working_ ? 1 : 0) || done_;
}

void MirrorThread::wait_until_it_can_take(const Interrupted& interrupted) {
  wait(interrupted, [&] { return state_.jobs.size() < kWaiting + (working_ ? 1 : 0) || done_; });
}

void MirrorThread::give(UpdateJob job) {
  const std::lock_guard lock(mutex_);
  state_.jobs.push_back({std::make_shared<const UpdateJob>(std::move(job)), {}});
  state_.most_waiting = std::max(state_.most_waiting, static_cast<std::int64_t>(state_.jobs.size()));
  changed_.notify_all();
}

void MirrorThread::give_weights(BaseWeights weights) {
  const std::lock_guard lock(mutex_);
  state_.weights.push_back(std::move(weights));
  changed_.notify_all();
}

void MirrorThread::note_skipped(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  ++state_.skipped;
  if (!state_.jobs.empty())
    state_.jobs.back().skipped_after.push_back(step);
  else
    messages_.push_back(skipped_message(step));
}

void MirrorThread::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

MirrorThread::Mail MirrorThread::take(double seconds, MirrorState* state) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !messages_.empty() || done_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  Mail mail;
  mail.messages = std::exchange(messages_, {});
  mail.stop = stop_;
  mail.done = done_;
  if (state) {
    *state = state_;
    state->missed = policy_.missed();
  }
  return mail;
}

}  // namespace tandem
