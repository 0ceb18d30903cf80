// Two trajectories, or two and replicates of the first one's stack, to a verdict (README.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/compare/figures.hpp"
#include "src/compare/report.hpp"

namespace tandem {

// Where the stacks of a pair are independent, and what they share (/provenance).
struct Axis {
  std::string name, a, b;  // "arithmetic"; "" where a file does not say it
  bool shared() const { return !a.empty() && a == b; }
};

struct FileFacts {
  std::string file, stack, precision, hosts;
  std::int64_t updates = 0, planned = -1;  // -1: not said
  std::string ranks, threads;
  bool complete = false;
};

struct Comparison {
  std::vector<FileFacts> files;
  bool same_spec = false;
  std::vector<std::string> spec_differences, execution_differences;  // "key: a / b"
  std::vector<Axis> axes;
  bool same_bits = false;    // promised
  std::int64_t horizon = 0;  // updates that rounding can be followed over; 0: none, or not needed
  std::vector<Observation> observations;
  std::ptrdiff_t first = -1;  // index of the first divergence
  Figures figures;

  enum class Conclusion { kPass, kDisagree, kIncomplete };
  Conclusion conclusion = Conclusion::kIncomplete;
  std::string why;  // in one line
};
const char* name_of(Comparison::Conclusion conclusion);

struct CompareOptions {
  bool across_specs = false;  // compare in spite of other specs; never a pass
};

// all: A, B, then replicates of A's stack. Where specs differ, nothing else is looked at without
// across_specs. Throws kInput where a replicate is none.
Comparison compare(std::span<const Trajectory> all, const CompareOptions& options);

}  // namespace tandem
