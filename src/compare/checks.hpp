// The comparison level by level. Each function adds its observations.
#pragma once

#include <vector>

#include "src/compare/pair.hpp"
#include "src/compare/report.hpp"

namespace tandem {

using Observations = std::vector<Observation>;

void check_operators(const Pair& pair, Observations& out);  // level 1: /ops
void check_loading(const Pair& pair, Observations& out);    // level 2
void check_rendering(const Pair& pair, Observations& out);  // level 3
void check_untrained(const Pair& pair, Observations& out);  // level 1: the model before any update
void check_adapter(const Pair& pair, Observations& out);    // level 4, as the following
void check_updates(const Pair& pair, Observations& out);
void check_evaluations(const Pair& pair, Observations& out);
void check_snapshots(const Pair& pair, Observations& out);
// What one file records of what its texts say, what follows from its own numbers, and its audits. who: "A" or
// "B".
void check_own_records(const Run& run, const char* who, Observations& out);
void check_own_numbers(const Run& run, const char* who, Observations& out);
void check_audits(const Run& run, const char* who, Observations& out);

}  // namespace tandem
