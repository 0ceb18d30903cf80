#include "src/check/loss_check.hpp"

#include <algorithm>
#include <cmath>

#include "comm/communicator.hpp"
#include "src/audit/thresholds.hpp"
#include "src/base/text.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/memory_plan.hpp"
#include "src/train/trainer.hpp"

namespace tandem {

namespace {

// The most samples, from the first, that the mirror evaluates `times` times in so many seconds; at least as
// many as hold a scored token.
std::int64_t samples_within(const CheckSubject& subject, double times, double seconds) {
  const SampleSet& all = subject.inputs.held_out.samples;
  std::int64_t n = 0;
  while (n < all.size() && all.n_scored(n) == 0) ++n;
  n = std::min(n + 1, all.size());
  while (n < all.size() && times * subject.seconds(subject.mirror.evaluation_flops(n + 1), n + 1) <= seconds)
    ++n;
  return n;
}

SampleSet first_samples(const SampleSet& all, std::int64_t n) {
  SampleSet part;
  for (std::int64_t i = 0; i < n; ++i) part.add(all.ids(i), all.targets(i), all.line(i));
  return part;
}

struct NativeLosses {
  EvalResult off, untrained, adapted;
};

// As a run evaluates.
NativeLosses native_losses(const CheckSubject& subject, const SampleSet& held_out) {
  Execution execution = subject.config.execution;
  execution.observe_probe = 0;
  execution.mirror_every = 0;  // the mirror works when native has ended
  execution.mirror_mode = "audit";
  // No update is made, so one sample stands for the training set: memory is planned by it.
  SampleSet one;
  const std::int32_t id[] = {0};
  const std::uint8_t mark[] = {0};
  one.add(id, mark, 1);
  const MemoryPlan plan = plan_memory(subject.inputs.config, subject.lora, subject.config.spec, execution,
                                      one, held_out, subject.ctx.threads, 1, subject.memory_bytes);
  SingleCommunicator alone;
  Trainer trainer(subject.ctx, alone, subject.config.spec, execution, subject.inputs.config, subject.weights,
                  subject.lora, one, held_out, plan.n_recomputed);
  NativeLosses losses;
  std::copy(subject.untrained.begin(), subject.untrained.end(), trainer.adapter().begin());
  losses.off = trainer.evaluate(false);
  losses.untrained = trainer.evaluate(true);
  std::copy(subject.seeded.begin(), subject.seeded.end(), trainer.adapter().begin());
  losses.adapted = trainer.evaluate(true);
  return losses;
}

CheckedLoss compare(CheckLine& line, const char* what, const EvalResult& native,
                    const mirror::Evaluation& own, double limit) {
  const auto n = static_cast<double>(own.n_tokens);
  const CheckedLoss loss{native.loss(), own.nll_sum / n, limit * own.nll_sum / n};
  if (native.n_tokens != own.n_tokens)
    line.fail(Verdict::kExact,
              cat(what, ": ", native.n_tokens, " scored tokens, by the mirror ", own.n_tokens));
  else if (!(std::abs(loss.difference()) <= loss.limit))
    line.fail(Verdict::kCalibrated,
              formatted("held-out loss %s %.6f, by the mirror %.6f: %.1e nat apart, rounding explains %.1e",
                        what, loss.native, loss.mirror, std::abs(loss.difference()), loss.limit));
  return loss;
}

}  // namespace

double loss_limit(const CheckSubject& subject, double unit, bool same_for_all, double seconds) {
  const int draws = Thresholds::kDraws;
  // What a few hundred tokens show of rounding is enough.
  constexpr std::int64_t kTokens = 256;
  const SampleSet& all = subject.inputs.held_out.samples;
  const std::int64_t most = samples_within(subject, draws + 1, seconds);
  std::int64_t n = 0;
  for (std::int64_t tokens = 0; n < most && tokens < kTokens; ++n) tokens += all.n_scored(n);
  const mirror::Evaluation exact = subject.mirror.evaluate_first(n, &subject.seeded_tensors);
  double squares = 0.0;
  for (int draw = 0; draw < draws; ++draw) {
    const mirror::Evaluation rounded = subject.mirror.evaluate_first(
        n, &subject.seeded_tensors, mirror::Rounding{unit, static_cast<std::uint64_t>(draw) + 1});
    squares += std::pow((rounded.nll_sum - exact.nll_sum) / exact.nll_sum, 2) / draws;
  }
  // Of independent errors of N tokens the mean's is sqrt(N) smaller than one token's.
  return 6.0 * std::sqrt(squares * (same_for_all ? static_cast<double>(exact.n_tokens) : 1.0));
}

CheckLine check_untrained_loss(const CheckSubject& subject, double seconds, CheckReport& report,
                               std::optional<HeldOutLosses>& losses) {
  CheckLine line{1, "untrained loss"};
  const SampleSet& all = subject.inputs.held_out.samples;
  if (all.size() == 0) return CheckLine::not_checked(1, line.name, "no data.held_out is given");
  const std::int64_t n = samples_within(subject, 2.0, seconds);
  if (n < all.size())
    line.left_out.push_back(
        cat(all.size() - n, " of ", all.size(), " held-out samples: the mirror would take ",
            formatted("%.0f s", 2.0 * subject.seconds(subject.mirror.evaluation_flops(), all.size()))));
  losses.emplace();
  losses->samples = first_samples(all, n);

  const NativeLosses native = native_losses(subject, losses->samples);
  if (native.untrained.nll_sum != native.off.nll_sum)
    line.fail(Verdict::kExact, formatted("with B = 0 the held-out loss is %.9f, without adapter %.9f",
                                         native.untrained.loss(), native.off.loss()));
  if (native.adapted.nll_sum == native.off.nll_sum)
    line.fail(Verdict::kExact,
              "the held-out loss is, to the bit, that without adapter: the adapter takes no part");
  const mirror::Evaluation off = subject.mirror.evaluate_first(n, nullptr);
  losses->mirror_adapted = subject.mirror.evaluate_first(n, &subject.seeded_tensors);
  losses->native_adapted = native.adapted.nll_sum;
  losses->n_tokens = native.adapted.n_tokens;
  const double limit =
      loss_limit(subject, unit_roundoff(subject.config.execution.precision), false, 0.5 * seconds);
  report.untrained = compare(line, "untrained", native.off, off, limit);
  report.adapted = compare(line, "with a drawn adapter", native.adapted, losses->mirror_adapted, limit);
  line.summary =
      formatted("%.6f, mirror %.6f (%+.1e nat); with an adapter %+.1e; ", report.untrained->native,
                report.untrained->mirror, report.untrained->difference(), report.adapted->difference()) +
      counted(off.n_tokens, "token");
  return line;
}

}  // namespace tandem
