#include "src/compare/report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "src/base/text.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

const char* name_of(Outcome outcome) {
  constexpr const char* kNames[] = {"PASS", "CALIBRATED", "BOUND", "EXACT", "NOT CHECKED"};
  return kNames[static_cast<int>(outcome)];
}

int level_of(Stage stage) {
  constexpr int kLevels[] = {1, 2, 3, 1, 4};
  return kLevels[static_cast<int>(stage)];
}

const char* level_name(int level) {
  constexpr const char* kNames[] = {"", "operators", "loading", "rendering", "trajectory"};
  return kNames[level];
}

Observation::Observation() : largest(kNone), finest(kNone), coarsest(kNone) {}

Observation::Observation(Stage stage_in, Step step_in, std::string name_in, Outcome kind_in)
    : stage(stage_in),
      step(step_in),
      name(std::move(name_in)),
      kind(kind_in),
      largest(kNone),
      finest(kNone),
      coarsest(kNone) {}

Check::Check(Stage stage, Step step, std::string name, Outcome kind, std::string unit)
    : out_(stage, step, std::move(name), kind) {
  out_.unit = std::move(unit);
}

void Check::note(double difference, double limit) {
  ++out_.checked;
  if (!(difference <= out_.largest)) out_.largest = difference;
  out_.nearest = std::fmax(out_.nearest, difference == 0.0 ? 0.0 : difference / limit);
  if (!(limit >= out_.finest)) out_.finest = limit;
  if (!(limit <= out_.coarsest)) out_.coarsest = limit;
}

void Check::fail(std::int64_t update, const std::string& place, const std::string& detail) {
  if (out_.failed++ > 0 && !(update < out_.update)) return;
  out_.outcome = out_.kind;
  out_.update = update;
  out_.place = place;
  out_.detail = detail;
}

std::string Check::numbers(double difference, double limit) const {
  return cat(short_number(difference), " ", out_.unit, ", at most ", short_number(limit));
}

Observation Check::result() const {
  Observation out = out_;
  if (out.failed > 1)
    out.detail += cat(out.detail.empty() ? "" : "; ", out.failed, " of ", out.checked, " differ");
  if (out.failed == 0) {
    out.detail = said_;
    if (!out.unit.empty() && out.checked > 0)
      out.detail +=
          cat(said_.empty() ? "" : ", ", "largest difference ", short_number(out.largest), " ", out.unit);
  }
  return out;
}

Observation not_checked(Stage stage, Step step, const std::string& name, const std::string& why,
                        bool missing) {
  Observation out(stage, step, name, Outcome::kNotChecked);
  out.outcome = Outcome::kNotChecked;
  out.detail = why;
  out.missing = missing;
  return out;
}

std::ptrdiff_t first_divergence(const std::vector<Observation>& all) {
  std::ptrdiff_t first = -1;
  const auto key = [](const Observation& o) { return std::tuple(o.stage, o.update, o.step); };
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].fails() && (first < 0 || key(all[i]) < key(all[static_cast<std::size_t>(first)])))
      first = static_cast<std::ptrdiff_t>(i);
  return first;
}

}  // namespace tandem
