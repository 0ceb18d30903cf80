#include "io/format/snapshot.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "io/format/rules.hpp"
#include "io/format/table.hpp"
#include "io/hdf5.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

using hdf5::Node;

bool is_part(const std::string& name) {
  return std::find(std::begin(kSnapshotParts), std::end(kSnapshotParts), name) != std::end(kSnapshotParts);
}

class SnapshotCheck {
 public:
  SnapshotCheck(std::string file, std::string where, const AdapterShapes& adapter, Findings& findings)
      : file_(std::move(file)), where_(std::move(where)), adapter_(adapter), findings_(findings) {
    // A snapshot by itself: its first part says what the others are held to.
    names_ = adapter.names;
  }

  void part(const Node& root, const std::string& name) {
    const std::string path = cat(where_, "/", name);
    if (!root.holds_group(name)) return findings_.add(path, "is no group of this file", "a group");
    const Node group = *root.group(name);
    const auto members = group.members();
    if (names_.empty()) names_ = members;
    for (const std::string& tensor : names_)
      if (std::find(members.begin(), members.end(), tensor) == members.end())
        findings_.add(cat(path, "/", tensor), "is missing", "a matrix for each adapter tensor");
    for (const std::string& tensor : members) {
      const auto found = std::find(names_.begin(), names_.end(), tensor);
      if (found == names_.end())
        findings_.add(cat(path, "/", tensor), "is there", "the adapter's tensors only");
      else
        guarded([&] { matrix(group, name, tensor, static_cast<std::size_t>(found - names_.begin())); });
    }
  }

  template <class Check>
  void guarded(Check&& check) {
    try {
      check();
    } catch (const Error& error) {
      Findings one;
      one.add(error, file_);
      const Problem& problem = one.problems().front();
      findings_.add(where_ + problem.where, problem.found, problem.expected);
    }
  }

 private:
  void matrix(const Node& group, const std::string& part, const std::string& tensor, std::size_t row) {
    const std::string path = cat(where_, "/", part, "/", tensor);
    if (!group.has(tensor) || group.holds_group(tensor))
      return findings_.add(path, "is no dataset of this file", "a matrix");
    const Node node = group.dataset(tensor);
    for (const char* name : {"unit", "description"})
      if (node.text_attribute(name).value_or("").empty())
        findings_.add(path, cat("has no attribute ", name), "a text");
    if (node.text_list_attribute("DIMENSION_LABELS").size() != 2)
      findings_.add(path, "lacks dimension labels", "one text for each of its dimensions");
    const auto announced = group.announced(tensor);
    const bool real = announced.type == "float32" || announced.type == "float64";
    if (!real) findings_.add(path, "is " + announced.type, "float32 or float64 little-endian");
    if (real && type_.empty()) type_ = announced.type;
    if (real && announced.type != type_)
      findings_.add(path, "is " + announced.type, type_ + ", as the others");
    if (!shape_fits(path, announced.dims, row) || !real) return;
    std::vector<std::int64_t> dims;
    const auto values = group.doubles(tensor, dims);
    const bool moment = part == "v";
    findings_.each(
        path.substr(1), values.size(),
        [&](std::size_t i) {
          return unless(std::isfinite(values[i]) && (!moment || values[i] >= 0.0), values[i],
                        moment ? "a finite number of at least 0" : "a finite number");
        },
        static_cast<std::size_t>(dims[1]));
  }

  bool shape_fits(const std::string& path, const std::vector<std::int64_t>& dims, std::size_t row) {
    const auto& shapes = adapter_.shapes;
    const bool known = 2 * row + 1 < shapes.size();
    const bool right =
        dims.size() == 2 && (!known || (dims[0] == shapes[2 * row] && dims[1] == shapes[2 * row + 1]));
    if (right) return true;
    findings_.add(path, cat("has the shape [", joined(dims), "]"),
                  known ? cat("[", shapes[2 * row], ", ", shapes[2 * row + 1], "], as /adapter/shapes has")
                        : "[rows, cols]");
    return false;
  }

  std::string file_, where_, type_;
  const AdapterShapes& adapter_;
  Findings& findings_;
  std::vector<std::string> names_;
};

}  // namespace

bool looks_like_snapshot(const std::filesystem::path& file) {
  const hdf5::Id id = hdf5::open_for_reading(file);
  const Node root(id, file);
  const auto attributes = root.attributes();
  if (std::find(attributes.begin(), attributes.end(), "format") != attributes.end()) return false;
  const auto members = root.members();
  return !members.empty() && std::all_of(members.begin(), members.end(), is_part);
}

void check_snapshot(const std::filesystem::path& file, const std::string& where, const AdapterShapes& adapter,
                    Findings& findings, std::vector<std::string>& present,
                    std::vector<std::string>& ignored) {
  SnapshotCheck check(file.string(), where, adapter, findings);
  check.guarded([&] {
    const hdf5::Id id = hdf5::open_for_reading(file);
    const Node root(id, file);
    for (const std::string& name : root.members())
      if (is_part(name)) {
        present.push_back(name);
        check.guarded([&] { check.part(root, name); });
      } else {
        ignored.push_back(cat(where, "/", name));
      }
    if (present.empty()) findings.add(where, "holds no part of a snapshot", "adapter, m, v or gradient");
  });
}

}  // namespace tandem::format
