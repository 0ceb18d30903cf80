// Rules on /audit and on the links of /snapshot.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "io/format/rules.hpp"
#include "io/format/table.hpp"
#include "io/observations.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

template <std::size_t kCount>
void check_enumeration(Columns& columns, const char* path, const char* const (&names)[kCount],
                       const std::string& words) {
  if (const auto* values = columns.ints(path))
    columns.findings().each(path, values->size(), [&](std::size_t i) {
      return unless((*values)[i] >= 0 && (*values)[i] < static_cast<std::int64_t>(std::size(names)),
                    (*values)[i], cat("0 to ", kCount - 1, " (", words, ")"));
    });
}

}  // namespace

void check_audits(Columns& columns, const RunPlan& plan) {
  check_enumeration(columns, "audit/scope", kAuditScopeNames, scope_names());
  check_enumeration(columns, "audit/verdict", kVerdictNames, verdict_names());
  if (const auto* step = columns.ints("audit/step"))
    columns.findings().each("audit/step", step->size(), [&](std::size_t i) {
      const std::int64_t least = i > 0 ? std::max<std::int64_t>((*step)[i - 1], 0) : 0, at = (*step)[i];
      if (plan.updates && at > *plan.updates) return unless(false, at, cat("at most ", *plan.updates));
      return unless(at >= least, at, cat("at least ", least, " (steps do not descend)"));
    });
  const auto *scope = columns.ints("audit/scope"), *micro = columns.ints("audit/micro_batch");
  if (scope && micro)
    columns.findings().each("audit/micro_batch", micro->size(), [&](std::size_t i) {
      const bool batch = (*scope)[i] == 0;
      return unless(batch ? (*micro)[i] == -1 : (*micro)[i] >= 0, (*micro)[i],
                    batch ? "-1 with scope batch" : "a micro-batch, from 0");
    });
  for (const char* name : {"audit/loss_error", "audit/norm_error", "audit/relative_error", "audit/bound",
                           "audit/optimizer_error"}) {
    const auto* values = columns.doubles(name);
    if (!values) continue;
    columns.findings().each(
        name, values->size(),
        [&](std::size_t i) { return unless(!((*values)[i] < 0.0), (*values)[i], "at least 0, or NaN"); },
        columns.width(name));
  }
}

std::vector<SnapshotLink> check_snapshot_links(Columns& columns, const RunPlan& plan) {
  std::vector<SnapshotLink> links;
  try {
    const auto group = columns.group("snapshot");
    if (!group) return links;
    const std::string stack = columns.root().text_attribute("stack").value_or("");
    const std::string stem = std::filesystem::path(columns.file()).stem().string();
    const auto names = group->members();
    for (const std::string& name : names) {
      const std::string where = "/snapshot/" + name;
      const auto step = number_in_name(name);
      if (!step || *step < 1 || (plan.updates && *step > *plan.updates)) {
        columns.findings().add(where, "is its name", "the number of an update");
        continue;
      }
      const auto link = group->external(name);
      const std::string wanted = cat(stack, ".snapshots/", name, ".h5");
      const bool right =
          link && (link->file == wanted || link->file == cat(stem, ".snapshots/", name, ".h5"));
      if (right && link->object == "/")
        links.push_back({*step, link->file});
      else
        columns.findings().add(
            where, link ? cat("leads to ", link->object, " of ", link->file) : "is no external link",
            cat("a link to / of ", wanted));
    }
    const std::int64_t every = plan.snapshot_every.value_or(0);
    const std::int64_t last = columns.has("update/step") ? columns.size("update/step") : 0;
    for (std::int64_t step = every; every > 0 && step <= last; step += every)
      if (std::find(names.begin(), names.end(), std::to_string(step)) == names.end()) {
        columns.findings().add(cat("/snapshot/", step), "is missing",
                               cat("a link at each multiple of snapshot.every = ", every));
        break;
      }
  } catch (const Error& error) {
    columns.findings().add(error, columns.file());
  }
  return links;
}

}  // namespace tandem::format
