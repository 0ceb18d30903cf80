#include "src/train/slow_phases.hpp"

#include <sstream>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/text.hpp"
#include "src/train/format_numbers.hpp"

namespace tandem {

namespace {

constexpr const char* kNames[] = {"gradient", "all-reduce", "step", "evaluation", "update"};

}  // namespace

void SlowPhases::add(Phase phase, std::int64_t step, double seconds, double operations, double at_s) {
  const auto slow = watches_[phase].add(seconds, operations, at_s);
  if (watches_[phase].began()) begin_[phase] = strain_now();
  if (!slow) return;
  SlowRow row;
  row.step = step;
  // All ranks are in these together; rank 0 speaks.
  row.rank = phase == kAllReduce || phase == kUpdate ? -1 : rank_;
  row.factor = *slow;
  row.phase = kNames[phase];
  row.host = host_;
  row.seen = printable_line(strain_since(begin_[phase]));
  named_.push_back(std::move(row));
}

void SlowPhases::update(std::int64_t step, const PhaseTimes& times, const UpdateTime& whole, double at_s) {
  constexpr double kLately_s = 2.0;
  if (now_s() - lately_.at_s > kLately_s) {
    before_ = std::exchange(lately_, strain_now());
    if (before_.at_s == 0.0) before_ = lately_;
  }
  add(kGradient, step, times.gradient_s, static_cast<double>(times.gradient_tokens), at_s);
  add(kStep, step, times.step_s, 1.0, at_s);
  if (rank_ != 0) return;
  add(kAllReduce, step, times.all_reduce_s, 1.0, at_s);
  add(kUpdate, step, whole.seconds, static_cast<double>(whole.tokens), at_s);
}

void SlowPhases::evaluation(std::int64_t step, const PhaseTimes& times, double at_s) {
  add(kEvaluation, step, times.evaluation_s, static_cast<double>(times.evaluation_tokens), at_s);
}

// First how the rank fared lately: severity, host, seen; then a line each: step, rank, factor, phase, host,
// seen; with tabulators between.
std::string SlowPhases::take() {
  std::string text = cat(formatted("%.6g", severity_since(before_)), '\t', host_, '\t',
                         printable_line(strain_since(before_)), '\n');
  for (const SlowRow& row : std::exchange(named_, {}))
    text += cat(row.step, '\t', row.rank, '\t', formatted("%.17g", row.factor), '\t', row.phase, '\t',
                row.host, '\t', row.seen, '\n');
  return text;
}

std::vector<SlowRow> SlowPhases::read(const std::vector<std::string>& taken) {
  std::vector<SlowRow> rows;
  double most = -1.0;
  std::string worst;  // the rank that fared worst
  for (std::size_t rank = 0; rank < taken.size(); ++rank) {
    std::istringstream in(taken[rank]);
    double severity = 0.0;
    std::string host, seen;
    in >> severity;
    in.ignore();
    std::getline(in, host, '\t');
    std::getline(in, seen);
    if (severity > most) {
      most = severity;
      worst = cat("rank ", rank, " on ", host, " fared worst: ", seen);
    }
    for (std::string line; std::getline(in, line);) {
      std::istringstream parts(line);
      SlowRow row;
      parts >> row.step >> row.rank >> row.factor;
      parts.ignore();
      std::getline(parts, row.phase, '\t');
      std::getline(parts, row.host, '\t');
      std::getline(parts, row.seen);
      rows.push_back(std::move(row));
    }
  }
  if (taken.size() > 1)
    for (SlowRow& row : rows)
      if (row.rank < 0) row.seen = worst;
  return rows;
}

std::string SlowPhases::line(const SlowRow& row) {
  const std::string who = row.rank < 0 ? "all ranks" : cat("rank ", row.rank, " on ", row.host);
  return cat(who, ": ", row.phase, formatted(" %.1f times as slow as usual", row.factor), ", seen at ",
             row.phase == kNames[kEvaluation] ? "the evaluation after update " : "update ", row.step, ": ",
             row.seen);
}

}  // namespace tandem
