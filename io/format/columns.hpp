// The datasets of one file that have the right type and shape, read when a rule first looks at them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "io/format/findings.hpp"
#include "io/hdf5.hpp"

namespace tandem::format {

class Columns {
 public:
  Columns(const hdf5::Node& root, std::string file, Findings& findings)
      : root_(root), file_(std::move(file)), findings_(findings) {}

  Findings& findings() { return findings_; }
  const hdf5::Node& root() const { return root_; }
  const std::string& file() const { return file_; }
  // The group "load/memory"; nullopt where it is absent or no group.
  std::optional<hdf5::Node> group(const std::string& path) const;

  // Said once the structure is known.
  void take(const std::string& path, std::vector<std::int64_t> dims) { good_[path] = std::move(dims); }
  bool has(const std::string& path) const { return good_.contains(path); }
  // Elements of a row.
  std::size_t width(const std::string& path) const;
  // The size along dimension d of a dataset that has() is true for.
  std::int64_t size(const std::string& path, std::size_t d = 0) const { return good_.at(path).at(d); }

  // Values; nullptr: absent, or wrong in a way that has been told.
  const std::vector<std::int64_t>* ints(const std::string& path) { return values<std::int64_t>(path); }
  const std::vector<double>* doubles(const std::string& path) { return values<double>(path); }
  const std::vector<std::string>* texts(const std::string& path) { return values<std::string>(path); }
  // Elements [first, first + count) of a list of integers; empty, and told, where they cannot be read.
  std::vector<std::int64_t> part(const std::string& path, std::int64_t first, std::int64_t count);
  void forget(const std::string& path) { values_.erase(path); }
  // Reads what no rule has looked at, so that what cannot be read is told.
  void read_the_rest();

 private:
  using Values = std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

  template <class T>
  const std::vector<T>* values(const std::string& path);

  const hdf5::Node& root_;
  std::string file_;
  Findings& findings_;
  std::map<std::string, std::vector<std::int64_t>> good_;
  std::map<std::string, Values> values_;
};

}  // namespace tandem::format
