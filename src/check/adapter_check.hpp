// An adapter saved as PEFT's folder and merged into the model, each read back by both stacks.
#pragma once

#include "src/check/loss_check.hpp"
#include "src/check/report.hpp"
#include "src/check/subject.hpp"

namespace tandem {

// Saved: the same bits and exactly the run's tensors in both. Merged, in the model's own dtypes: each element
// of an adapted weight is W + s B A, rounded once (by the mirror's reading of both models); all other
// tensors, embedding and head among them, have the same bits; the loss of the merged model is that of base
// and adapter as far as that rounding reaches. losses: where the held-out loss was computed. Everything is
// written into a temporary folder.
CheckLine check_adapter(const CheckSubject& subject, double seconds,
                        const std::optional<HeldOutLosses>& losses, CheckReport& report);

}  // namespace tandem
