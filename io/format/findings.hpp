// What is wrong with a file, one entry per rule that is broken and dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.hpp"

namespace tandem::format {

// Problems of one rule and dataset are counted up to here.
inline constexpr std::int64_t kMostCounted = 9'999;

struct Problem {
  std::string where;      // "/update/loss"; "": the file as a whole
  std::int64_t row = -1;  // from 0; -1: the dataset as a whole
  std::string found, expected;
  std::int64_t more = 0;  // other elements that break the same rule

  // "/update/loss, row 3: is -1, expected a number of at least 0 (and 2 more)"
  std::string line() const;
};

// One element that breaks a rule.
struct Wrong {
  std::string found, expected;
};

// Digits that read back.
std::string digits(double value);
inline std::string digits(std::int64_t value) { return std::to_string(value); }
inline std::string digits(std::uint64_t value) { return std::to_string(value); }

class Findings {
 public:
  void add(std::string where, std::string found, std::string expected) {
    problems_.push_back({std::move(where), -1, std::move(found), std::move(expected)});
  }
  // What a reader threw: "FILE: /where: what" or "FILE: what".
  void add(const Error& error, const std::string& file);

  // rule(i), an optional<Wrong>, for the `count` elements of a dataset, `width` of them a row. Those that are
  // wrong become one problem, which shows the first.
  template <class Rule>
  void each(const std::string& path, std::size_t count, Rule&& rule, std::size_t width = 1) {
    std::optional<Problem> problem;
    for (std::size_t i = 0; i < count; ++i) {
      if (problem && problem->more >= kMostCounted) break;
      std::optional<Wrong> wrong = rule(i);
      if (!wrong) continue;
      if (problem)
        ++problem->more;
      else
        problem = Problem{"/" + path, static_cast<std::int64_t>(width ? i / width : i),
                          std::move(wrong->found), std::move(wrong->expected)};
    }
    if (problem) problems_.push_back(std::move(*problem));
  }

  const std::vector<Problem>& problems() const { return problems_; }
  bool clean() const { return problems_.empty(); }

 private:
  std::vector<Problem> problems_;
};

}  // namespace tandem::format
