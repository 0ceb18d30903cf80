#include "src/compare/compare.hpp"

#include <algorithm>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/pair.hpp"
#include "src/compare/replicates.hpp"

namespace tandem {

namespace {

std::string value(const Values& values, const char* key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

FileFacts facts_of(const Run& run) {
  FileFacts out;
  out.file = run.t.path.string();
  out.stack = run.t.stack;
  out.precision = value(run.execution, "precision");
  out.hosts = run.of("hosts");
  out.ranks = value(run.execution, "ranks");
  out.threads = value(run.execution, "threads");
  out.updates = run.updates();
  out.planned = run.planned().value_or(-1);
  out.complete = run.t.complete;
  return out;
}

void conclude(Comparison& out) {
  using Conclusion = Comparison::Conclusion;
  out.first = first_divergence(out.observations);
  std::vector<const Observation*> missing;
  for (const Observation& o : out.observations)
    if (o.missing) missing.push_back(&o);
  if (out.first >= 0) {
    const Observation& o = out.observations[static_cast<std::size_t>(out.first)];
    out.conclusion = Conclusion::kDisagree;
    out.why = cat("first at level ", level_of(o.stage), ", ", level_name(level_of(o.stage)), ": ", o.name,
                  o.place.empty() ? "" : ": " + o.place);
    return;
  }
  if (!out.same_spec) {
    out.why = "the files have other specs";
  } else if (!missing.empty()) {
    out.why = cat(missing.front()->name, ": ", missing.front()->detail,
                  missing.size() > 1 ? cat(" (and ", missing.size() - 1, " more)") : "");
  } else {
    out.conclusion = Conclusion::kPass;
    std::size_t left = 0;
    for (const Observation& o : out.observations) left += o.outcome == Outcome::kNotChecked;
    out.why = left == 0 ? "all that was looked at"
                        : cat("what was checked; ", left,
                              left == 1 ? " observation was not" : " observations were not");
  }
}

}  // namespace

const char* name_of(Comparison::Conclusion conclusion) {
  constexpr const char* kNames[] = {"PASS", "DISAGREE", "NO PASS"};
  return kNames[static_cast<int>(conclusion)];
}

Comparison compare(std::span<const Trajectory> all, const CompareOptions& options) {
  if (all.size() < 2) throw Error(ErrorKind::kUsage, "compare: two trajectories are the least");
  const Pair pair(all[0], all[1]);
  Comparison out;
  for (const Trajectory& t : all) out.files.push_back(facts_of(Run(t)));
  out.spec_differences = differing_values(pair.a.spec, pair.b.spec);
  out.same_spec = !pair.a.t.spec_text.empty() && pair.a.t.spec_text == pair.b.t.spec_text;
  out.execution_differences = differing_values(pair.a.execution, pair.b.execution);
  for (const char* axis : {"arithmetic", "orchestration", "runtime"})
    out.axes.push_back({axis, pair.a.of(axis), pair.b.of(axis)});
  if (!out.same_spec && !options.across_specs) {
    out.why = out.spec_differences.empty()
                  ? "a file has no spec: nothing says that both were to compute the same"
                  : cat("the files have other specs (", out.spec_differences.front(), ")");
    out.why += "; --across-specs compares all the same";
    return out;
  }
  out.same_bits = pair.same_bits;
  if (pair.rounding && !pair.same_bits) out.horizon = pair.rounding->horizon();

  Observations& o = out.observations;
  check_operators(pair, o);
  check_loading(pair, o);
  check_rendering(pair, o);
  check_untrained(pair, o);
  check_adapter(pair, o);
  check_updates(pair, o);
  check_evaluations(pair, o);
  for (const auto& [run, who] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")}) {
    check_own_records(*run, who, o);
    check_own_numbers(*run, who, o);
    check_audits(*run, who, o);
  }
  check_snapshots(pair, o);
  if (all.size() > 2) check_replicates(pair, all, o);
  std::stable_sort(o.begin(), o.end(), [](const Observation& x, const Observation& y) {
    return level_of(x.stage) < level_of(y.stage);
  });
  out.figures = figures_of(pair);
  conclude(out);
  return out;
}

}  // namespace tandem
