// Rules on /eval and what is recorded with each evaluation: /probe, /activation, /memory.
#include <algorithm>
#include <cmath>

#include "io/format/rules.hpp"
#include "io/observations.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

// The step of evaluation i: 0, the multiples of `every`, then `last`; beyond it -1.
std::int64_t step_of(std::size_t i, std::int64_t every, std::int64_t last) {
  const auto at = static_cast<std::int64_t>(i);
  const std::int64_t multiples = last / every;
  if (at <= multiples) return at * every;
  return at == multiples + 1 && last % every != 0 ? last : -1;
}

void check_steps(Columns& columns, const RunPlan& plan) {
  const auto* step = columns.ints("eval/step");
  if (!step) return;
  const auto& steps = *step;
  const bool planned = plan.eval_every.value_or(0) > 0 && plan.updates.value_or(0) > 0;
  columns.findings().each("eval/step", steps.size(), [&](std::size_t i) {
    if (!planned) {
      const bool right = i == 0 ? steps[i] == 0 : steps[i] > steps[i - 1];
      return unless(right, steps[i], i == 0 ? "0, the untrained model" : cat("more than ", steps[i - 1]));
    }
    const std::int64_t wanted = step_of(i, *plan.eval_every, *plan.updates);
    return unless(steps[i] == wanted, steps[i],
                  wanted < 0 ? cat("no evaluation after the last, at ", *plan.updates)
                             : cat(wanted, " (0, each multiple of eval.every = ", *plan.eval_every, ", then ",
                                   *plan.updates, ")"));
  });
  if (planned && is_complete(columns) && (steps.empty() || steps.back() < *plan.updates))
    columns.findings().add("/eval/step", steps.empty() ? "is empty" : cat("ends at ", steps.back()),
                           cat(*plan.updates, ", the last update, as the file is complete"));
  if (columns.has("update/step") && !steps.empty() && steps.back() > columns.size("update/step"))
    columns.findings().add("/eval/step", cat("ends at ", steps.back()),
                           cat("at most ", columns.size("update/step"), ", the updates of /update"));
}

void check_losses(Columns& columns) {
  const auto *sum = columns.doubles("eval/nll_sum"), *loss = columns.doubles("eval/loss");
  const auto* tokens = columns.ints("eval/n_tokens");
  check_not_negative(columns, "eval/nll_sum");
  if (tokens) {
    const auto train = n_train(columns);
    const auto* scored = columns.ints("render/n_targets");
    std::int64_t held_out = -1;
    if (train && scored) {
      held_out = 0;
      for (auto i = static_cast<std::size_t>(*train); i < scored->size(); ++i) held_out += (*scored)[i];
    }
    columns.findings().each("eval/n_tokens", tokens->size(), [&](std::size_t i) {
      const std::int64_t n = (*tokens)[i];
      return held_out < 0
                 ? unless(n > 0, n, "a number above 0")
                 : unless(n == held_out, n, cat(held_out, ", the held-out targets of /render/n_targets"));
    });
  }
  if (sum && loss && tokens)
    columns.findings().each("eval/loss", loss->size(), [&](std::size_t i) {
      const double quotient = (*sum)[i] / static_cast<double>((*tokens)[i]);
      // A quotient in double is rounded once, a product with 1/n three times, by 2^-53 each.
      constexpr double kRoundings = 3.0 * 0x1p-53;
      return unless(std::abs((*loss)[i] - quotient) <= kRoundings * std::abs(quotient), (*loss)[i],
                    digits(quotient) + ", nll_sum / n_tokens");
    });
  if (const auto* off = columns.doubles("eval/loss_adapter_off"))
    columns.findings().each("eval/loss_adapter_off", off->size(), [&](std::size_t i) {
      return unless(std::isnan((*off)[i]) || not_negative((*off)[i]), (*off)[i],
                    cat(kNotNegative, ", or NaN"));
    });
  check_not_negative(columns, "eval/seconds");
}

void check_probe_tokens(Columns& columns) {
  const auto *sample = columns.ints("probe/sample"), *position = columns.ints("probe/position"),
             *target = columns.ints("probe/target"), *n_ids = columns.ints("render/n_ids");
  if (!sample || !position || !target) return;
  const auto train = n_train(columns);
  const bool known = train && n_ids;
  const auto held_out = known ? static_cast<std::int64_t>(n_ids->size()) - *train : 0;
  columns.findings().each("probe/sample", sample->size(), [&](std::size_t k) {
    const std::int64_t s = (*sample)[k];
    return unless(s >= 0 && (!known || s < held_out), s,
                  known ? cat("a held-out sample, below ", held_out) : "a number of at least 0");
  });
  columns.findings().each("probe/position", position->size(), [&](std::size_t k) {
    const std::int64_t s = (*sample)[k], p = (*position)[k];
    if (known && s >= 0 && s < held_out)
      if (const auto length = (*n_ids)[static_cast<std::size_t>(*train + s)]; p >= length)
        return unless(false, p, cat("below ", length, ", the length of held-out sample ", s));
    return unless(p >= 1, p, "at least 1 (token 0 is never scored)");
  });
  columns.findings().each("probe/position", position->size(), [&](std::size_t k) {
    const bool right = k == 0 || (*sample)[k] > (*sample)[k - 1] ||
                       ((*sample)[k] == (*sample)[k - 1] && (*position)[k] > (*position)[k - 1]);
    return unless(right, (*position)[k], "samples and, in each, positions that ascend");
  });
  columns.findings().each("probe/target", target->size(), [&](std::size_t k) {
    return unless((*target)[k] >= 0, (*target)[k], "a token id");
  });
}

void check_probe(Columns& columns) {
  check_probe_tokens(columns);
  for (const char* name : {"probe/nll", "probe/target_logit"})
    if (const auto* values = columns.doubles(name))
      columns.findings().each(
          name, values->size(),
          [&](std::size_t i) { return unless(std::isfinite((*values)[i]), (*values)[i], "a finite number"); },
          columns.width(name));
  const auto* id = columns.ints("probe/topk_id");
  const auto* logit = columns.doubles("probe/topk_logit");
  if (!id || !logit) return;
  columns.findings().each(
      "probe/topk_id", id->size(),
      [&](std::size_t i) -> std::optional<Wrong> {
        const bool none = (*id)[i] == -1;
        if ((*id)[i] < -1 || none != !std::isfinite((*logit)[i]) || (none && !std::isnan((*logit)[i])))
          return Wrong{cat("is ", (*id)[i], " with the logit ", digits((*logit)[i])),
                       "a token id with its logit, or -1 with NaN"};
        if (i % kTopLogits == 0 || none) return std::nullopt;
        const double before = (*logit)[i - 1], here = (*logit)[i];
        if (before > here || (before == here && (*id)[i - 1] < (*id)[i])) return std::nullopt;
        return Wrong{cat("is ", (*id)[i], " with the logit ", digits(here), " after ", digits(before)),
                     "the largest first, equal ones by ascending id"};
      },
      columns.width("probe/topk_id"));
}

void check_activations(Columns& columns) {
  for (const char* name :
       {"activation/rms", "activation/absmax", "activation/ba_norm", "activation/update_norm"})
    check_not_negative(columns, name);
  if (columns.has("activation/ba_norm") && columns.has("activation/update_norm")) {
    const std::int64_t modules = columns.size("activation/ba_norm", 1),
                       tensors = columns.size("activation/update_norm", 1);
    if (2 * modules != tensors)
      columns.findings().add("/activation/ba_norm", cat("has ", modules, " columns"),
                             cat("one for two of the ", tensors, " adapter tensors"));
  }
  const auto* change = columns.doubles("activation/update_norm");
  const auto* step = columns.ints("eval/step");
  if (!change || !step) return;
  const std::size_t wide = columns.width("activation/update_norm");
  columns.findings().each(
      "activation/update_norm", change->size(),
      [&](std::size_t i) {
        return unless((*step)[i / wide] != 0 || (*change)[i] == 0.0, (*change)[i],
                      "0 before the first update");
      },
      wide);
  const auto* lr = columns.doubles("update/lr");
  if (!lr) return;
  columns.findings().each(
      "activation/update_norm", change->size(),
      [&](std::size_t i) {
        const std::int64_t at = (*step)[i / wide];
        const bool still = at >= 1 && at <= static_cast<std::int64_t>(lr->size()) &&
                           (*lr)[static_cast<std::size_t>(at - 1)] == 0.0;
        return unless(!still || (*change)[i] == 0.0, (*change)[i], "0, as the update's learning rate is 0");
      },
      wide);
}

void check_memory(Columns& columns) {
  for (const char* name : {"memory/host_bytes", "memory/device_bytes"})
    if (const auto* bytes = columns.ints(name))
      columns.findings().each(name, bytes->size(), [&](std::size_t i) {
        const std::int64_t least = i > 0 ? (*bytes)[i - 1] : 0;
        return unless((*bytes)[i] >= least, (*bytes)[i], cat("at least ", least, " (a peak so far)"));
      });
}

}  // namespace

void check_evaluations(Columns& columns, const RunPlan& plan) {
  check_steps(columns, plan);
  check_losses(columns);
  check_probe(columns);
  for (const char* name : {"probe/topk_id", "probe/topk_logit"}) columns.forget(name);
  check_activations(columns);
  check_memory(columns);
}

}  // namespace tandem::format
