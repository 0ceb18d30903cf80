// Snapshots, tensor by tensor: d = |x - x*| / |x*| and s = <x, x*> / <x*, x*>, B's the reference.
#include <algorithm>
#include <filesystem>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/tensor_difference.hpp"
#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

constexpr Stage kStage = Stage::kTrajectory;
constexpr const char* kKeys[] = {"snapshot.every", "snapshot.what"};

struct Part {
  const char* name;
  Step step;
};
constexpr Part kParts[] = {
    {"adapter", Step::kState}, {"m", Step::kState}, {"v", Step::kState}, {"gradient", Step::kGradient}};

// Steps that both files hold a snapshot of, with the files.
struct Common {
  std::int64_t step;
  std::filesystem::path a, b;
};
std::vector<Common> common_snapshots(const Trajectory& a, const Trajectory& b) {
  std::vector<Common> out;
  for (const auto& [step, file] : a.snapshots)
    for (const auto& [other, other_file] : b.snapshots)
      if (step == other) out.push_back({step, file, other_file});
  return out;
}

void compare_part(const Pair& pair, const std::vector<Common>& common, const Part& part, Observations& out) {
  const std::string name = cat("snapshots: ", part.name);
  const auto& names = pair.a.t.adapter->names;
  Check check(kStage, part.step, name, pair.same_bits ? Outcome::kExact : Outcome::kBound,
              pair.same_bits ? "" : "relative (d)");
  std::int64_t left = 0;
  double worst = 0.0;
  std::string where;
  for (const Common& c : common) {
    std::vector<std::vector<double>> x, y;
    try {
      x = read_snapshot(c.a, part.name, names);
      y = read_snapshot(c.b, part.name, names);
    } catch (const Error& error) {
      out.push_back(not_checked(kStage, part.step, name, error.what(), true));
      return;
    }
    for (std::size_t k = 0; k < names.size(); ++k) {
      const auto place = [&] { return cat("update ", c.step, ", ", names[k]); };
      if (x[k].size() != y[k].size()) {
        check.equal(false, c.step, [&] {
          return cat(place(), ": ", x[k].size(), " elements in A, ", y[k].size(), " in B");
        });
        continue;
      }
      const TensorDifference found = tensor_difference(x[k], y[k], 0.0);
      const double d = found.relative_error, s = found.projection;
      if (!(d <= worst)) worst = d, where = cat(place(), " (s = ", s, ")");
      const auto with_s = [&] { return cat(place(), ": d = ", short_number(d), ", s = ", s); };
      if (pair.same_bits)
        check.equal(std::equal(x[k].begin(), x[k].end(), y[k].begin(), same_number), c.step, with_s);
      else if (c.step == 1 && part.step == Step::kState)
        check.within(d, 0.0, c.step,
                     with_s);  // nothing has been rounded yet: one float32 in every stack
      else if (c.step == 1 && pair.rounding)
        check.within(d, pair.rounding->gradient(), c.step, with_s);
      else
        ++left;
    }
  }
  if (check.checked() > 0) {
    check.say(where.empty() ? "" : cat("largest d at ", where));
    out.push_back(check.result());
  }
  if (left > 0)
    out.push_back(not_checked(
        kStage, part.step, cat(name, check.checked() > 0 ? ", later" : ""),
        cat("rounding may have grown to any size; largest d = ", short_number(worst), " at ", where)));
}

}  // namespace

void check_snapshots(const Pair& pair, Observations& out) {
  const Trajectory &a = pair.a.t, &b = pair.b.t;
  if (a.snapshots.empty() && b.snapshots.empty()) return;
  const auto common = common_snapshots(a, b);
  if (!a.adapter || !b.adapter) return;
  if (common.empty()) {
    // A run whose audits fail leaves snapshots that no other run has.
    const Presence presence(pair, out);
    const auto every = pair.a.execution.find("snapshot.every");
    const bool failed_audits = every != pair.a.execution.end() && every->second == "0";
    if (failed_audits)
      out.push_back(not_checked(kStage, Step::kState, "snapshots", "the files hold none of the same update"));
    else
      presence.both(kStage, Step::kState, "snapshots", "/snapshot of the same update", !a.snapshots.empty(),
                    !b.snapshots.empty(), true, kKeys);
    return;
  }
  for (const Part& part : kParts) compare_part(pair, common, part, out);
}

}  // namespace tandem
