// Training and held-out samples as token ids with target marks: what text becomes, and all that training
// sees.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem {

class SampleSet {
 public:
  SampleSet() = default;
  // From the arrays as they lie in memory: sample i is ids [begin[i], begin[i+1]). Throws kInput where they
  // do not fit together.
  SampleSet(std::vector<std::int64_t> begin, std::vector<std::int32_t> ids, std::vector<std::uint8_t> targets,
            std::vector<std::int64_t> line);

  // ids and targets have equal length; line is the 1-based physical line of the file.
  void add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> targets, std::int64_t line);

  std::int64_t size() const { return static_cast<std::int64_t>(line_.size()); }
  std::int64_t length(std::int64_t i) const { return begin_[i + 1] - begin_[i]; }
  std::span<const std::int32_t> ids(std::int64_t i) const {
    return {ids_.data() + begin_[i], static_cast<std::size_t>(length(i))};
  }
  std::span<const std::uint8_t> targets(std::int64_t i) const {
    return {targets_.data() + begin_[i], static_cast<std::size_t>(length(i))};
  }
  std::int64_t line(std::int64_t i) const { return line_[i]; }
  // The arrays of the constructor, for writing them.
  const std::vector<std::int64_t>& all_begins() const { return begin_; }
  const std::vector<std::int32_t>& all_ids() const { return ids_; }
  const std::vector<std::uint8_t>& all_targets() const { return targets_; }
  const std::vector<std::int64_t>& all_lines() const { return line_; }
  // Tokens p >= 1 with target mark 1: token 0 is never scored.
  std::int64_t n_scored(std::int64_t i) const;
  // SHA-256 of the ids as int32 little-endian, then the marks as bytes (SPEC.md, "Digests").
  std::string digest(std::int64_t i) const;

 private:
  std::vector<std::int64_t> begin_ = {0};
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> targets_;
  std::vector<std::int64_t> line_;
};

}  // namespace tandem
