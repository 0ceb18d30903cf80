#include "io/trajectory_validation.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "io/contained.hpp"
#include "io/format/columns.hpp"
#include "io/format/snapshot.hpp"
#include "io/hdf5.hpp"
#include "src/base/error.hpp"

namespace tandem {

namespace format {

// How a child process hands its findings over.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Problem, where, row, found, expected, more)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SnapshotLink, step, file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AdapterShapes, names, shapes)

}  // namespace format

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Validity, problems, present, absent, ignored)

namespace {

using nlohmann::json;

// The trajectory's own findings, and what its snapshots are held to.
struct Examined {
  Validity validity;
  std::vector<format::SnapshotLink> snapshots;
  format::AdapterShapes adapter;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Examined, validity, snapshots, adapter)

std::string text_of(format::Columns& columns, const std::string& path) {
  const auto* texts = columns.texts(path);
  return texts ? texts->front() : "";
}

Examined examine_trajectory(const std::filesystem::path& file, const ReadPlan& read_plan) {
  const hdf5::Id id = hdf5::open_for_reading(file);
  const hdf5::Node root(id, file);
  format::Findings findings;
  format::Columns columns(root, file.string(), findings);
  Examined out;
  if (format::check_root(columns)) {
    format::Parts parts = format::check_structure(columns);
    const format::RunPlan plan = read_plan(text_of(columns, "spec/text"), text_of(columns, "execution/text"));
    format::check_texts(columns);
    format::check_load(columns);
    format::check_render(columns);
    format::check_updates(columns, plan);
    format::check_evaluations(columns, plan);
    format::check_audits(columns, plan);
    out.snapshots = format::check_snapshot_links(columns, plan);
    if (const auto* names = columns.texts("adapter/names"); names && !out.snapshots.empty())
      if (const auto* shapes = columns.ints("adapter/shapes")) out.adapter = {*names, *shapes};
    columns.read_the_rest();
    out.validity.present = std::move(parts.present);
    out.validity.absent = std::move(parts.absent);
    out.validity.ignored = std::move(parts.ignored);
  }
  out.validity.problems = findings.problems();
  return out;
}

Examined examine_snapshot(const std::filesystem::path& file, const std::string& where,
                          const format::AdapterShapes& adapter) {
  format::Findings findings;
  Examined out;
  format::check_snapshot(file, where, adapter, findings, out.validity.present, out.validity.ignored);
  out.validity.problems = findings.problems();
  return out;
}

Examined examine(const std::filesystem::path& file, const ReadPlan& read_plan) {
  return format::looks_like_snapshot(file) ? examine_snapshot(file, "", {})
                                           : examine_trajectory(file, read_plan);
}

// `work` in a child process; what ends it is a problem at `where`.
template <class Work>
Examined contained(const std::filesystem::path& file, const std::string& where, Work&& work) {
  try {
    const std::string text = run_contained(file, [&] {
      // A file's texts may be no UTF-8.
      return json(work()).dump(-1, ' ', false, json::error_handler_t::replace);
    });
    return json::parse(text).get<Examined>();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    format::Findings findings;
    findings.add(error, file.string());
    Examined out;
    for (format::Problem problem : findings.problems()) {
      problem.where = where + problem.where;
      out.validity.problems.push_back(std::move(problem));
    }
    return out;
  }
}

}  // namespace

Validity validate_trajectory(const std::filesystem::path& file, const ReadPlan& read_plan) {
  Examined all = contained(file, "", [&] { return examine(file, read_plan); });
  for (const format::SnapshotLink& link : all.snapshots) {
    const std::filesystem::path path = file.parent_path() / link.file;
    const std::string where = "/snapshot/" + std::to_string(link.step);
    const Examined snapshot =
        contained(path, where, [&] { return examine_snapshot(path, where, all.adapter); });
    for (const format::Problem& problem : snapshot.validity.problems)
      all.validity.problems.push_back(problem);
    for (const std::string& name : snapshot.validity.ignored) all.validity.ignored.push_back(name);
  }
  return std::move(all.validity);
}

Validity validate_in_process(const std::filesystem::path& file, const ReadPlan& read_plan) {
  try {
    return examine(file, read_plan).validity;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    format::Findings findings;
    findings.add(error, file.string());
    return {findings.problems(), {}, {}, {}};
  }
}

}  // namespace tandem
