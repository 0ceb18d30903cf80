#include "io/samples.hpp"

#include <algorithm>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/sha256.hpp"

namespace tandem {

SampleSet::SampleSet(std::vector<std::int64_t> begin, std::vector<std::int32_t> ids,
                     std::vector<std::uint8_t> targets, std::vector<std::int64_t> line)
    : begin_(std::move(begin)), ids_(std::move(ids)), targets_(std::move(targets)), line_(std::move(line)) {
  const bool good = begin_.size() == line_.size() + 1 && begin_.front() == 0 &&
                    begin_.back() == static_cast<std::int64_t>(ids_.size()) &&
                    ids_.size() == targets_.size() && std::is_sorted(begin_.begin(), begin_.end());
  if (!good) throw Error(ErrorKind::kInput, "ids, target marks and their places do not fit together");
}

void SampleSet::add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> targets,
                    std::int64_t line) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  begin_.push_back(static_cast<std::int64_t>(ids_.size()));
  line_.push_back(line);
}

std::int64_t SampleSet::n_scored(std::int64_t i) const {
  const auto marks = targets(i);
  std::int64_t count = 0;
  for (std::size_t p = 1; p < marks.size(); ++p) count += marks[p] != 0;
  return count;
}

std::string SampleSet::digest(std::int64_t i) const {
  return Sha256().update(ids(i)).update(targets(i)).hex();
}

}  // namespace tandem
