// Snapshots, tensor by tensor: d = |x - x*| / |x*| and s = <x, x*> / <x*, x*>, B's the reference.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "io/contained.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/tensor_difference.hpp"
#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

constexpr Stage kStage = Stage::kTrajectory;
constexpr const char* kKey = "snapshot.every";

using Tensors = std::vector<std::vector<double>>;
struct Part {
  const char* name;
  Step step;
};
constexpr Part kParts[] = {
    {"adapter", Step::kState}, {"m", Step::kState}, {"v", Step::kState}, {"gradient", Step::kGradient}};

// Updates that both files hold a snapshot of, with the files.
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

// What both runs were told to store.
bool stores(const Run& run, const char* part) {
  const auto what = run.execution.find("snapshot.what");
  return what == run.execution.end() ||
         cat(",", what->second, ",").find(cat(",", part, ",")) != std::string::npos;
}

class Snapshots {
 public:
  explicit Snapshots(const Pair& pair) : pair_(pair), names_(pair.a.t.adapter->names) {}

  void compare(const Common& c) {
    for (std::size_t p = 0; p < std::size(kParts); ++p) {
      Found& found = found_[p];
      if (!found.error.empty() || !stores(pair_.a, kParts[p].name) || !stores(pair_.b, kParts[p].name))
        continue;
      try {
        const Tensors x = read(c.a, kParts[p].name), y = read(c.b, kParts[p].name);
        tensors(c.step, p, x, y);
      } catch (const Error& error) {
        found.error = error.what();
      }
    }
  }

  void add_to(Observations& out) const {
    for (std::size_t p = 0; p < std::size(kParts); ++p) {
      const Found& found = found_[p];
      const std::string name = cat("snapshots: ", kParts[p].name);
      const std::string said =
          found.where.empty() ? "" : cat("largest d = ", short_number(found.worst), " at ", found.where);
      if (!found.error.empty()) {
        out.push_back(not_checked(kStage, kParts[p].step, name, found.error, true));
      } else if (found.check.checked() + found.left == 0) {
        out.push_back(not_checked(kStage, kParts[p].step, name, "snapshot.what of a run is without it"));
      } else if (found.check.checked() > 0) {
        Check check = found.check;
        check.say(said);
        out.push_back(check.result());
      }
      if (found.left > 0)
        out.push_back(not_checked(kStage, kParts[p].step,
                                  cat(name, found.check.checked() > 0 ? ", later" : ""),
                                  cat(kGrown, said.empty() ? "" : "; ", said)));
    }
  }

 private:
  struct Found {
    Check check;
    std::int64_t left = 0;  // tensors that were not judged
    double worst = 0.0;     // d
    std::string where = {}, error = {};
  };
  Found empty(const Part& part) const {
    return {Check(kStage, part.step, cat("snapshots: ", part.name),
                  pair_.same_bits ? Outcome::kExact : Outcome::kBound,
                  pair_.same_bits ? "" : "relative (d)")};
  }

  // Files of unknown origin: what crashes HDF5 does so in a child first.
  Tensors read(const std::filesystem::path& file, const char* part) const {
    run_contained(file, [&] {
      read_snapshot(file, part, *pair_.a.t.adapter);
      return std::string();
    });
    return read_snapshot(file, part, *pair_.a.t.adapter);
  }

  void tensors(std::int64_t step, std::size_t p, const Tensors& x, const Tensors& y) {
    Found& found = found_[p];
    const bool gradient = kParts[p].step == Step::kGradient;
    const bool near = gradient && pair_.rounding && step <= pair_.rounding->horizon();
    const double limit = near ? pair_.rounding->gradient(step) : std::nan("");
    const TensorFloors floors(names_, y);
    for (std::size_t k = 0; k < names_.size(); ++k) {
      const auto place = [&] { return cat("update ", step, ", ", names_[k]); };
      if (x[k].size() != y[k].size()) {
        found.check.equal(false, step, [&] {
          return cat(place(), ": ", x[k].size(), " elements in A, ", y[k].size(), " in B");
        });
        continue;
      }
      // Whatever the history, a number stays a number.
      bool numbers = true;
      for (const auto& [tensor, who] : {std::pair(&x[k], "A"), std::pair(&y[k], "B")})
        if (!std::all_of(tensor->begin(), tensor->end(), [](double v) { return std::isfinite(v); }))
          numbers = false, found.check.equal(false, step, [&, who = who] {
            return cat(place(), ": holds NaN or infinity in ", who);
          });
      if (!numbers) continue;
      const TensorDifference difference = tensor_difference(x[k], y[k], gradient ? floors.of(k) : 0.0);
      const double d = difference.relative_error, s = difference.projection;
      if (!(d <= found.worst)) found.worst = d, found.where = cat(place(), " (s = ", s, ")");
      const auto with_s = [&] { return cat(place(), ": d = ", short_number(d), ", s = ", s); };
      if (pair_.same_bits)
        found.check.equal(std::equal(x[k].begin(), x[k].end(), y[k].begin(), same_number), step, with_s);
      else if (step == 1 && !gradient)
        found.check.within(d, 0.0, step,
                           with_s);  // one drawn float32 in every stack, moments of 0
      else if (!std::isnan(limit))
        found.check.within(d, limit, step, with_s);
      else
        ++found.left;
    }
  }

  const Pair& pair_;
  const std::vector<std::string>& names_;
  Found found_[std::size(kParts)] = {empty(kParts[0]), empty(kParts[1]), empty(kParts[2]), empty(kParts[3])};
};

}  // namespace

void check_snapshots(const Pair& pair, Observations& out) {
  const Trajectory &a = pair.a.t, &b = pair.b.t;
  const auto planned = [](const Run& run) {
    const auto every = integer_of(run.execution, kKey);
    return every && *every > 0 && *every <= run.updates();
  };
  if (a.snapshots.empty() && b.snapshots.empty() && !planned(pair.a) && !planned(pair.b)) return;
  if (!a.adapter || !b.adapter) return;
  // A run whose audits fail leaves snapshots that no other run has.
  if (!Presence(pair, out).both(kStage, Step::kState, "snapshots", "/snapshot", !a.snapshots.empty(),
                                !b.snapshots.empty(), false, kKey))
    return;
  const auto common = common_snapshots(a, b);
  if (common.empty()) {
    out.push_back(not_checked(kStage, Step::kState, "snapshots", "the files hold none of the same update"));
    return;
  }
  Snapshots snapshots(pair);
  for (const Common& c : common) snapshots.compare(c);
  snapshots.add_to(out);
}

}  // namespace tandem
