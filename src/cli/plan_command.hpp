// `tandem plan`: what a run would take, without running it.
#pragma once

#include <iosfwd>
#include <string>

#include "src/spec/run_spec.hpp"

namespace tandem {

// local_ranks: the text of a whole number from 1. Throws kUsage, kInput, and kDevice where the run does not
// fit.
int plan_command(Config config, const std::string& local_ranks, std::ostream& out);

}  // namespace tandem
