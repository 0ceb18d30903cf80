// The rules of io/FORMAT.md by subject; each adds what is broken to the file's findings. Which datasets are
// there, their types and shapes come first: the rules on values look at those that are right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/format/columns.hpp"

namespace tandem::format {

// What the run planned, as its canonical texts have it; nullopt: not known.
struct RunPlan {
  std::optional<std::int64_t> updates, eval_every, batch_global, observe_every, snapshot_every;
};

struct Parts {
  std::vector<std::string> present, absent;  // groups of the format
  std::vector<std::string> ignored;          // datasets and groups of other names, at most a few
};

// Root attributes; false: a file that the other rules are not for.
bool check_root(Columns& columns);
// Groups, datasets, types, shapes and attributes.
Parts check_structure(Columns& columns);

void check_texts(Columns& columns);   // /spec, /execution, /provenance; digests and texts everywhere
void check_load(Columns& columns);    // /load, /ops, /adapter
void check_render(Columns& columns);  // /render
void check_updates(Columns& columns, const RunPlan& plan);      // /update, /observed, /slow
void check_evaluations(Columns& columns, const RunPlan& plan);  // /eval, /probe, /activation, /memory
void check_audits(Columns& columns, const RunPlan& plan);       // /audit

struct SnapshotLink {
  std::int64_t step = 0;
  std::string file;  // relative to the trajectory's folder
};
// The links of /snapshot that lead where they should.
std::vector<SnapshotLink> check_snapshot_links(Columns& columns, const RunPlan& plan);

// The number of training samples; nullopt where /render does not say.
std::optional<std::int64_t> n_train(const Columns& columns);
// The root attribute `complete` is 1.
bool is_complete(const Columns& columns);

inline constexpr const char* kNotNegative = "a finite number of at least 0";
bool not_negative(double value);
// The values of a dataset, of one column or several.
void check_not_negative(Columns& columns, const std::string& path);

// "is 3, expected 4" unless `right`; the texts are made for what is wrong only.
template <class Found, class Expected>
std::optional<Wrong> unless(bool right, const Found& found, const Expected& expected) {
  if (right) return std::nullopt;
  return Wrong{"is " + digits(found), std::string(expected)};
}

}  // namespace tandem::format
