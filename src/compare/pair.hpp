// Two trajectories side by side: what both were asked to compute, what each says of how it did, which rows
// belong together, and how far rounding may carry them apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/compare/report.hpp"
#include "src/compare/rounding.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

using Values = CanonicalValues;  // by key

// A trajectory with what its texts say.
struct Run {
  explicit Run(const Trajectory& trajectory);

  const Trajectory& t;
  Values spec, execution;
  std::string of(const char* fact) const;       // of /provenance; "" where it is not said
  std::optional<std::int64_t> planned() const;  // updates
  std::int64_t updates() const { return t.updates ? t.updates->rows : 0; }
  bool held_out() const;            // the spec asks for evaluations
  std::int64_t n_held_out() const;  // samples; 0: not known
};

// Rows of A and of B with the same step.
struct CommonRows {
  std::vector<std::pair<std::size_t, std::size_t>> rows;
  std::vector<std::int64_t> steps;
  std::int64_t only_a = -1, only_b = -1;  // first step that the other lacks
};
CommonRows common_rows(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

struct Pair {
  Pair(const Trajectory& a, const Trajectory& b);

  Run a, b;
  CommonRows updates, evaluations;
  bool same_bits = false;  // equal bits are promised (SPEC.md): same spec, stack and execution class
  std::optional<RoundingModel> rounding;
  std::string no_rounding;  // why it is none

  // Element i of column x in row r.
  static double at(const std::vector<double>& column, std::size_t row) { return column[row]; }
  std::int64_t samples_of(std::int64_t i) const;  // of common update row i
};

// Looks whether both hold a column; otherwise adds NOT CHECKED and returns false. key: the execution key of a
// part that not every run records: 0 or, of an interval, more than the updates made explains that it is not
// there; required: every run has it.
class Presence {
 public:
  Presence(const Pair& pair, std::vector<Observation>& out) : pair_(pair), out_(out) {}
  bool both(Stage stage, Step step, const std::string& name, const char* path, bool in_a, bool in_b,
            bool required, const char* key = nullptr) const;

 private:
  const Pair& pair_;
  std::vector<Observation>& out_;
};

// Why two files alone do not judge what comes after the horizon.
inline constexpr const char* kGrown =
    "by then rounding may have grown to any size; replicates of one stack would tell (further files)";

// The texts of all values that differ: "key: a / b".
std::vector<std::string> differing_values(const Values& a, const Values& b);

}  // namespace tandem
