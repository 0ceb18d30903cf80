// What a comparison found: one observation after the other, each with its verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class Outcome { kPass, kCalibrated, kBound, kExact, kNotChecked };
const char* name_of(Outcome outcome);

// In the order of cause and effect: what differs at one stage makes the later ones differ too. The untrained
// model's numbers are operators' (level 1), once it is known that both loaded and rendered the same.
enum class Stage { kOperators, kLoading, kRendering, kUntrained, kTrajectory };
int level_of(Stage stage);          // 1 to 4
const char* level_name(int level);  // "operators"

// Within one update, in the order of its computation.
enum class Step {
  kState,
  kSamples,
  kCounts,
  kRate,
  kLoss,
  kGradient,
  kNorm,
  kClip,
  kOptimiser,
  kAdapter,
  kEvaluation
};

struct Observation {
  Stage stage = Stage::kTrajectory;
  Step step = Step::kState;
  std::string name;  // "held-out loss"
  Outcome outcome = Outcome::kPass;
  Outcome kind = Outcome::kExact;        // of the check: what `outcome` is where it fails
  std::int64_t update = -1;              // where it fails first; -1: of no update
  std::string place;                     // in words: "update 3, sample 17", "model.norm.weight"
  std::string detail;                    // what was seen, or why it was not checked
  std::int64_t checked = 0, failed = 0;  // single comparisons
  // Of numbers: the largest difference in units of its own limit's unit, and what a PASS would have seen: the
  // least and the largest limit. NaN: exact, any difference is seen.
  double largest, finest, coarsest;
  double nearest = 0.0;  // the largest of difference over limit
  std::string unit;      // of these three: "relative", "nat", "ulp"
  // NOT CHECKED since a file lacks what it should hold: the comparison is no pass then.
  bool missing = false;

  Observation();
  Observation(Stage stage, Step step, std::string name, Outcome kind);
  bool fails() const { return outcome != Outcome::kPass && outcome != Outcome::kNotChecked; }
};

// Builds the observation of one kind of value from single comparisons, made in the order of the run.
class Check {
 public:
  Check(Stage stage, Step step, std::string name, Outcome kind, std::string unit = "");

  // An exact comparison. place() is called where it fails.
  template <class Place>
  void equal(bool same, std::int64_t update, Place&& place) {
    ++out_.checked;
    if (!same) fail(update, place(), "");
  }
  // difference <= limit; NaN fails. `said`: what is told of the first failure beside the place.
  template <class Place>
  void within(double difference, double limit, std::int64_t update, Place&& place) {
    note(difference, limit);
    if (!(difference <= limit)) fail(update, place(), numbers(difference, limit));
  }
  void say(const std::string& detail) { said_ = detail; }  // of a PASS
  std::int64_t checked() const { return out_.checked; }
  bool failed() const { return out_.failed > 0; }
  Observation result() const;

 private:
  void note(double difference, double limit);
  void fail(std::int64_t update, const std::string& place, const std::string& detail);
  std::string numbers(double difference, double limit) const;

  Observation out_;
  std::string said_;
};

Observation not_checked(Stage stage, Step step, const std::string& name, const std::string& why,
                        bool missing = false);

// Index of the failing observation that comes first in cause and effect, then in the run; -1: none fails.
std::ptrdiff_t first_divergence(const std::vector<Observation>& all);

}  // namespace tandem
