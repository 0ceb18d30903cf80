// The untrained held-out loss in both stacks, without adapter and with one whose B is not zero.
#pragma once

#include "src/check/report.hpp"
#include "src/check/subject.hpp"

namespace tandem {

// What the later comparison with a merged model needs of it.
struct HeldOutLosses {
  SampleSet samples;  // those of the held-out set that were computed
  mirror::Evaluation mirror_adapted;
  double native_adapted = 0.0;  // sum of nll
  std::int64_t n_tokens = 0;
};

// How far rounding to `unit` may carry the mirror's nll sum of its first samples, relative to it: six
// standard deviations, known from a few draws on its first few hundred tokens, less where they take longer
// than `seconds`; fewer tokens are further off. same_for_all: the errors may be the same for every token
// (weights that are rounded), so that they do not average out as independent ones do.
double loss_limit(const CheckSubject& subject, double unit, bool same_for_all, double seconds);

// seconds: what the mirror may take, about; of a held-out set that takes longer the first samples are
// computed. losses: filled where they were.
CheckLine check_untrained_loss(const CheckSubject& subject, double seconds, CheckReport& report,
                               std::optional<HeldOutLosses>& losses);

}  // namespace tandem
