// The whole model at once: the gradient of update 1's first micro-batch and the optimiser's step, judged as
// an audit judges them, by thresholds that are measured at that very state. The adapter is drawn with B not
// zero, so that A's gradients are seen.
#pragma once

#include "src/check/report.hpp"
#include "src/check/subject.hpp"

namespace tandem {

// seconds: what the mirror may take, about; of a micro-batch that takes longer the first samples are
// computed.
CheckLine check_first_update(const CheckSubject& subject, double seconds, CheckReport& report);

}  // namespace tandem
