#include "src/check/update_check.hpp"

#include <algorithm>
#include <cmath>

#include "comm/communicator.hpp"
#include "src/audit/check_update.hpp"
#include "src/audit/thresholds.hpp"
#include "src/base/text.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/memory_plan.hpp"
#include "src/train/order.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

namespace {

using Ids = std::vector<std::int64_t>;

FlatTensors in_digest_order(const LoraLayout& lora, std::span<const float> flat) {
  FlatTensors all;
  for (const std::span<const float> tensor : lora.spans(flat))
    all.insert(all.end(), tensor.begin(), tensor.end());
  return all;
}

double gradient_flops(const CheckSubject& subject, std::int64_t id) {
  const SampleSet& samples = subject.inputs.train.samples;
  return subject.mirror.gradient_flops(samples.length(id), samples.n_scored(id));
}

// Of the samples that are scored, the one that the mirror computes fastest; -1: none.
std::int64_t quickest(const CheckSubject& subject, std::span<const std::int64_t> ids) {
  std::int64_t best = -1;
  for (const std::int64_t id : ids)
    if (subject.inputs.train.samples.n_scored(id) > 0 &&
        (best < 0 || gradient_flops(subject, id) < gradient_flops(subject, best)))
      best = id;
  return best;
}

// Thresholds are measured on the quickest sample, as an audit's are on one.
double mirror_seconds(const CheckSubject& subject, std::span<const std::int64_t> ids) {
  double flops = 0.0;
  for (const std::int64_t id : ids) flops += gradient_flops(subject, id);
  const std::int64_t one = quickest(subject, ids);
  return subject.seconds(flops, static_cast<std::int64_t>(ids.size())) +
         (one < 0 ? 0.0 : (Thresholds::kDraws + 1) * subject.seconds(gradient_flops(subject, one), 1));
}

// Native's update 1 of the samples `ids` alone, as one micro-batch.
UpdateJob native_update(const CheckSubject& subject, const Ids& batch, std::size_t n) {
  RunSpec spec = subject.config.spec;
  Execution execution = subject.config.execution;
  spec.batch_global = execution.batch_micro = static_cast<std::int64_t>(n);
  execution.observe_probe = 0;
  execution.mirror_every = 0;  // the mirror works when native has ended
  execution.mirror_mode = "audit";
  const SampleSet nothing;
  const SampleSet& samples = subject.inputs.train.samples;
  const MemoryPlan plan = plan_memory(subject.inputs.config, subject.lora, spec, execution, samples, nothing,
                                      subject.ctx.threads, 1, subject.memory_bytes);
  SingleCommunicator alone;
  Trainer trainer(subject.ctx, alone, spec, execution, subject.inputs.config, subject.weights, subject.lora,
                  samples, nothing, plan.n_recomputed);
  std::copy(subject.seeded.begin(), subject.seeded.end(), trainer.adapter().begin());
  const auto flat = [&](std::span<const float> values) { return in_digest_order(subject.lora, values); };

  UpdateJob job;
  job.step = 1;
  job.starts_as_specified = false;
  job.sample_ids = batch;
  for (const std::int64_t id : batch) {
    job.sample_digests.push_back(samples.digest(id));
    job.n_targets += samples.n_scored(id);
  }
  job.config = subject.weights.config().echo();
  job.adapter = flat(trainer.adapter());
  job.m = flat(trainer.m());
  job.v = flat(trainer.v());
  trainer.watch(0);
  UpdateResult result = trainer.compute_gradient(1);
  job.norm = result.grad_norm;
  job.clip = result.clip;
  job.lr = result.lr;
  job.gradient = flat(trainer.gradient());
  job.scope = AuditScope::kMicroBatch;
  job.micro_batch = 0;
  job.micro_end = trainer.watched().end;
  job.micro_nll = trainer.watched().nll;
  job.micro_gradient = flat(trainer.watched().gradient);
  trainer.step(1, result);
  job.adapter_after = flat(trainer.adapter());
  job.m_after = flat(trainer.m());
  job.v_after = flat(trainer.v());
  return job;
}

// The largest of d's shares of its threshold.
double most_of_threshold(const AuditOutcome& outcome) {
  double most = 0.0;
  for (std::size_t p = 0; p < outcome.relative_error.size(); ++p)
    if (outcome.bound[p] > 0.0) most = std::max(most, outcome.relative_error[p] / outcome.bound[p]);
  return most;
}

}  // namespace

CheckLine check_first_update(const CheckSubject& subject, double seconds, CheckReport& report) {
  CheckLine line{1, "first update"};
  const RunSpec& spec = subject.config.spec;
  BatchOrder order(spec.seed_order, subject.inputs.train.samples.size(), spec.batch_global);
  const std::span<const std::int64_t> first = order.batch(1);
  const Ids batch(first.begin(), first.end());
  const auto micro = static_cast<std::size_t>(
      std::min<std::int64_t>(subject.config.execution.batch_micro, static_cast<std::int64_t>(batch.size())));
  std::size_t n = micro;
  const auto of_first = [&](std::size_t count) { return std::span(batch).first(count); };
  while (n > 1 && mirror_seconds(subject, of_first(n)) > seconds) --n;
  const std::int64_t one = quickest(subject, of_first(n));
  if (one < 0)
    return CheckLine::not_checked(1, line.name, "none of the first micro-batch's samples is scored");
  // Twice as long is still worth it; an hour is not.
  if (const double expected = mirror_seconds(subject, of_first(n)); expected > 4.0 * seconds)
    return CheckLine::not_checked(
        1, line.name,
        formatted("the mirror would take %.0f s for one sample's; audits of a run compute it", expected));
  if (n < micro)
    line.left_out.push_back(cat(micro - n, " of the micro-batch's ", micro,
                                " samples: the mirror would take ",
                                formatted("%.0f s", mirror_seconds(subject, of_first(micro)))));

  const UpdateJob job = native_update(subject, batch, n);
  const std::string& precision = subject.config.execution.precision;
  const std::int64_t ids[] = {one};
  Thresholds thresholds = measure_thresholds(subject.mirror, precision, subject.seeded_tensors, ids, 1);
  std::int64_t measured = 0;
  const AuditOutcome outcome = audit_update(subject.mirror, job, precision, thresholds, measured);
  line.summary = cat(counted(n, "sample"), n > 1 ? " in one row" : "");
  if (!outcome.relative_error.empty())
    line.summary += formatted(": gradient at most %.0f %% of its threshold away, loss %.1e; AdamW's step",
                              100.0 * most_of_threshold(outcome), outcome.loss_error);
  if (outcome.verdict != Verdict::kPass) line.fail(outcome.verdict, outcome.note);
  report.update = outcome;
  return line;
}

}  // namespace tandem
