#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "io/format/rules.hpp"
#include "io/format/table.hpp"
#include "io/trajectory.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

using hdf5::Link;
using hdf5::Node;

constexpr std::size_t kMostIgnored = 8;  // named in a report

// Datasets that are there together or not at all, though their groups may lack them.
const std::vector<std::vector<std::string>>& together() {
  static const std::vector<std::vector<std::string>> sets = {
      {"probe/topk_id", "probe/topk_logit"},
      {"activation/rms", "activation/absmax"},
      {"render/begin", "render/ids", "render/targets"}};
  return sets;
}

// Runs `check`; what it throws is a problem.
template <class Check>
void guarded(Columns& columns, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    columns.findings().add(error, columns.file());
  }
}

// 2025-01-31T12:00:00Z
bool is_time(const std::string& text) {
  constexpr std::string_view kPattern = "dddd-dd-ddTdd:dd:ddZ";
  return text.size() == kPattern.size() &&
         std::equal(text.begin(), text.end(), kPattern.begin(),
                    [](char c, char p) { return p == 'd' ? c >= '0' && c <= '9' : c == p; });
}

bool type_fits(Kind kind, const hdf5::Announced& announced) {
  if (kind == Kind::kText) return announced.text;
  if (kind == Kind::kDigest) return announced.type == "text of 64 bytes";
  return announced.type == name_of(kind);
}

std::string words_for(Kind kind) {
  return kind == Kind::kDigest                         ? "text of 64 bytes"
         : kind == Kind::kText                         ? "text"
         : kind == Kind::kInt8 || kind == Kind::kUint8 ? name_of(kind)
                                                       : cat(name_of(kind), " little-endian");
}

// Sizes by symbol, each as the first dataset with it has it.
class SizesSoFar {
 public:
  // What `size` should be; "": it fits.
  std::string misfit(const Extent& extent, std::int64_t size, const std::string& path) {
    if (extent.fixed > 0) return size == extent.fixed ? "" : cat(extent.fixed);
    std::string symbol = extent.symbol;
    std::int64_t base = size;
    if (symbol.ends_with("+1")) {
      symbol.erase(symbol.size() - 2);
      --base;
    }
    const auto [found, first] = sizes_.try_emplace(symbol, base, path);
    if (found->second.first == base) return "";
    return cat(extent.symbol, " = ", found->second.first + size - base, ", as /", found->second.second,
               " has");
  }

 private:
  std::map<std::string, std::pair<std::int64_t, std::string>> sizes_;
};

class StructureCheck {
 public:
  explicit StructureCheck(Columns& columns) : columns_(columns) {}

  Parts run() {
    for (const std::string& group : groups()) check_group(group);
    for (const auto& set : together()) check_together(set);
    for (const char* other : {"provenance", "snapshot"}) note_presence(other);
    guarded(columns_, [&] { note_unknown(columns_.root(), "", {"provenance", "snapshot"}); });
    check_enumerations();
    return std::move(parts_);
  }

 private:
  Findings& findings() { return columns_.findings(); }

  // Whether `name` in `parent` is an object of this file; a link that is not followed is told of.
  bool is_own(const Node& parent, const std::string& name, const std::string& path) {
    switch (parent.link(name)) {
      case Link::kNone:
        return false;
      case Link::kHard:
        return true;
      case Link::kSoft:
      case Link::kElsewhere:
        break;
    }
    findings().add("/" + path, "is a link", "an object of its own");
    return false;
  }

  void note_presence(const std::string& group) {
    guarded(columns_, [&] {
      if (!is_own(columns_.root(), group, group)) return parts_.absent.push_back(group);
      if (columns_.group(group)) return parts_.present.push_back(group);
      findings().add("/" + group, "is a dataset", "a group");
    });
  }

  void check_group(const std::string& path) {
    guarded(columns_, [&] {
      const std::size_t slash = path.find('/');
      const auto parent = slash == path.npos ? std::nullopt : columns_.group(path.substr(0, slash));
      if (slash != path.npos && !parent) return parts_.absent.push_back(path);
      const Node& above = parent ? *parent : columns_.root();
      const std::string name = slash == path.npos ? path : path.substr(slash + 1);
      if (!is_own(above, name, path)) return parts_.absent.push_back(path);
      if (!above.holds_group(name)) return findings().add("/" + path, "is a dataset", "a group");
      parts_.present.push_back(path);
      const Node group = *above.group(name);
      for (const Dataset& dataset : datasets())
        if (dataset.group == path) guarded(columns_, [&] { check_dataset(group, dataset); });
      note_unknown(group, path + "/", {});
    });
  }

  void check_dataset(const Node& group, const Dataset& dataset) {
    const std::string path = dataset.path();
    if (!is_own(group, dataset.name, path)) {
      if (!dataset.optional && group.link(dataset.name) == Link::kNone)
        findings().add("/" + path, "is missing", dataset.shape());
      return;
    }
    if (group.holds_group(dataset.name)) return findings().add("/" + path, "is a group", dataset.shape());
    check_attributes(group.dataset(dataset.name), dataset);
    const hdf5::Announced announced = group.announced(dataset.name);
    const bool fits = type_fits(dataset.kind, announced);
    if (!fits) findings().add("/" + path, "is " + announced.type, words_for(dataset.kind));
    if (check_shape(dataset, announced.dims) && fits) columns_.take(path, announced.dims);
  }

  bool check_shape(const Dataset& dataset, const std::vector<std::int64_t>& dims) {
    const std::string path = dataset.path();
    // One value may lie in a dataset of one element.
    const bool one = dataset.extents.empty() && dims == std::vector<std::int64_t>{1};
    if (dims.size() != dataset.extents.size() && !one) {
      findings().add("/" + path, cat("has the shape [", joined(dims), "]"),
                     dataset.extents.empty() ? "one value" : dataset.shape());
      return false;
    }
    bool fits = true;
    for (std::size_t d = 0; d < dataset.extents.size(); ++d) {
      const std::string wanted = sizes_.misfit(dataset.extents[d], dims[d], path);
      if (wanted.empty()) continue;
      findings().add("/" + path, cat("has the shape [", joined(dims), "]"),
                     cat(dataset.shape(), " with ", wanted));
      fits = false;
    }
    return fits;
  }

  void check_attributes(const Node& node, const Dataset& dataset) {
    const std::string where = "/" + dataset.path();
    for (const char* name : {"unit", "description"}) {
      const auto text = node.text_attribute(name);
      if (!text || text->empty()) findings().add(where, cat("has no attribute ", name), "a text");
    }
    if (dataset.extents.empty()) return;
    const auto labels = node.text_list_attribute("DIMENSION_LABELS");
    if (labels.size() != dataset.extents.size() || std::count(labels.begin(), labels.end(), "") > 0)
      findings().add(where, "lacks dimension labels", cat("one text for each of its dimensions"));
  }

  void check_together(const std::vector<std::string>& set) {
    const auto there = [&](const std::string& path) {
      const std::size_t slash = path.find('/');
      const auto group = columns_.group(path.substr(0, slash));
      return group && group->has(path.substr(slash + 1));
    };
    guarded(columns_, [&] {
      const auto first = std::find_if(set.begin(), set.end(), there);
      if (first == set.end()) return;
      for (const std::string& path : set)
        if (!there(path)) findings().add("/" + path, "is missing", "to be there, as /" + *first + " is");
    });
  }

  void check_enumerations() {
    const std::pair<const char*, std::string> lists[] = {{"scope", scope_names()},
                                                         {"verdict", verdict_names()}};
    for (const auto& [name, names] : lists) {
      if (!columns_.has(std::string("audit/") + name)) continue;
      guarded(columns_, [&, column = name, wanted = names] {
        const auto text = columns_.group("audit")->dataset(column).text_attribute("names");
        if (text != wanted)
          findings().add(cat("/audit/", column),
                         text ? "has the attribute names = " + *text : "has no attribute names", wanted);
      });
    }
  }

  void note_unknown(const Node& group, const std::string& path, const std::vector<std::string>& known) {
    for (const std::string& name : group.members()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string full = path + name;
      const bool is_known = std::any_of(datasets().begin(), datasets().end(), [&](const Dataset& dataset) {
        return dataset.path() == full || dataset.group == full;
      });
      if (is_known) continue;
      if (parts_.ignored.size() == kMostIgnored) return parts_.ignored.push_back("...");
      if (parts_.ignored.size() < kMostIgnored) parts_.ignored.push_back("/" + full);
    }
  }

  Columns& columns_;
  SizesSoFar sizes_;
  Parts parts_;
};

}  // namespace

bool check_root(Columns& columns) {
  const Node& root = columns.root();
  Findings& findings = columns.findings();
  std::optional<std::string> format;
  std::optional<std::int64_t> version;
  guarded(columns, [&] { format = root.text_attribute("format"); });
  if (format != "tandem-trajectory") {
    if (findings.clean())
      findings.add("attribute format", format ? cat("is \"", *format, '"') : "is missing",
                   "\"tandem-trajectory\"");
    return false;
  }
  guarded(columns, [&] { version = root.int_attribute("format_version"); });
  if (version != kTrajectoryVersion) {
    if (findings.clean())
      findings.add("attribute format_version", version ? cat("is ", *version) : "is missing",
                   cat(kTrajectoryVersion));
    return false;
  }
  guarded(columns, [&] {
    if (root.text_attribute("stack").value_or("").empty())
      findings.add("attribute stack", "is missing or empty", "the name of the stack");
  });
  guarded(columns, [&] {
    const auto complete = root.int_attribute("complete");
    if (complete != 0 && complete != 1)
      findings.add("attribute complete", complete ? cat("is ", *complete) : "is missing", "0 or 1");
  });
  guarded(columns, [&] {
    const auto time = root.text_attribute("written_at");
    if (!time || !is_time(*time))
      findings.add("attribute written_at", time ? cat("is \"", *time, '"') : "is missing",
                   "a time like 2025-01-31T12:00:00Z");
  });
  return true;
}

Parts check_structure(Columns& columns) { return StructureCheck(columns).run(); }

bool is_complete(const Columns& columns) {
  try {
    return columns.root().int_attribute("complete") == 1;
  } catch (const Error&) {
    return false;  // told by check_root
  }
}

bool not_negative(double value) { return std::isfinite(value) && value >= 0.0; }

void check_not_negative(Columns& columns, const std::string& path) {
  if (const auto* values = columns.doubles(path))
    columns.findings().each(
        path, values->size(),
        [&](std::size_t i) { return unless(not_negative((*values)[i]), (*values)[i], kNotNegative); },
        columns.width(path));
}

}  // namespace tandem::format
