// What `tandem check` finds: one line for each thing that is looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/observations.hpp"
#include "io/samples.hpp"
#include "src/audit/check_update.hpp"
#include "src/check/operations.hpp"

namespace tandem {

struct CheckLine {
  int level = 0;
  std::string name;                  // "operations"
  Verdict verdict = Verdict::kPass;  // kSkipped: NOT CHECKED
  std::string summary = {};          // what was looked at; why not
  std::vector<std::string> findings = {};
  std::vector<std::string> left_out = {};  // what of it was not looked at, and why

  void fail(Verdict how, std::string what) {
    findings.push_back(std::move(what));
    verdict = verdict == Verdict::kSkipped ? how : std::max(verdict, how);
  }
  static CheckLine not_checked(int level, std::string name, std::string why) {
    return {level, std::move(name), Verdict::kSkipped, std::move(why)};
  }
};

// Losses in nat per scored token.
struct CheckedLoss {
  double native = 0.0, mirror = 0.0, limit = 0.0;  // limit: of |native - mirror|
  double difference() const { return native - mirror; }
};

struct CheckReport {
  std::vector<CheckLine> lines;  // in order of levels
  std::vector<OperationCheck> operations;
  std::optional<AuditOutcome> update;  // of update 1's first micro-batch
  std::vector<std::string> adapter_tensors;
  std::optional<CheckedLoss> untrained, adapted, merged;
  std::string spec_digest;
  SampleSet shown;  // the first training samples

  // The gravest; kPass where nothing failed, whatever was not checked.
  Verdict verdict() const {
    Verdict worst = Verdict::kPass;
    for (const CheckLine& line : lines)
      if (line.verdict != Verdict::kSkipped) worst = std::max(worst, line.verdict);
    return worst;
  }
};

}  // namespace tandem
