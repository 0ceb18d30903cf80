// What `tandem check` sees of faults planted in native, before anything is trained.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "tests/support/mirrored_runs.hpp"

namespace tandem::faults_test {
namespace {

struct Seen {
  std::string fault, level, line, verdict, note;  // of the gravest line; a part of what it says
};

const std::vector<Seen>& table() {
  static const std::vector<Seen> rows = {
      {"wrong_alpha", "1", "first update", "CALIBRATED", "layers.1.mlp.down_proj"},
      {"unread_theta", "2", "loading", "EXACT", "rope_theta 10000.0, by the mirror 1000000.0"},
      {"wrong_norm_eps", "1", "first update", "CALIBRATED", "gradient's relative error"},
      {"wrong_adam_eps", "1", "first update", "BOUND", "AdamW's step is off by"},
      {"transposed_tensor", "2", "loading", "EXACT",
       "base tensor model.layers.0.self_attn.o_proj.weight in memory"},
      {"ignored_stride", "1", "first update", "CALIBRATED", "gradient's relative error"},
      {"half_shared_projection", "1", "operations", "BOUND", "attention.dk"},
      {"generic_template", "3", "rendering", "EXACT", "training sample 0 (line 1)"},
      {"shifted_labels", "1", "untrained loss", "CALIBRATED", "held-out loss untrained"},
      {"leaking_packing", "1", "untrained loss", "CALIBRATED", "held-out loss untrained"},
      {"eval_without_adapter", "1", "untrained loss", "EXACT", "the adapter takes no part"},
  };
  return rows;
}

class CheckFaults : public testing::Test {
 protected:
  static support::Bench& bench() {
    static support::Bench bench;
    return bench;
  }
  static nlohmann::json check(const std::string& program, const std::string& fault, int code) {
    return nlohmann::json::parse(bench().check(program, fault.empty() ? "" : "TANDEM_FAULT=" + fault,
                                               "--batch.micro 2 --threads 1 --json", code),
                                 nullptr, false);
  }
};

TEST_F(CheckFaults, AreSeenBeforeTrainingAtTheirLevel) {
  std::string readme =
      support::read_text(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/faults/README.md");
  for (const Seen& seen : table()) {
    SCOPED_TRACE(seen.fault);
    const nlohmann::json report =
        check(TANDEM_FAULTY, seen.fault, static_cast<int>(ErrorKind::kDisagreement));
    ASSERT_TRUE(report.is_object());
    bool found = false;
    for (const auto& line : report["lines"]) {
      std::string findings;
      for (const auto& what : line["findings"]) findings += what.get<std::string>() + "; ";
      if (!findings.empty())
        std::printf("%s: level %d, %s, %s: %s\n", seen.fault.c_str(), line["level"].get<int>(),
                    line["name"].get<std::string>().c_str(), line["verdict"].get<std::string>().c_str(),
                    findings.c_str());
      if (line["name"] != seen.line) continue;
      found = true;
      EXPECT_EQ(line["verdict"], seen.verdict);
      EXPECT_EQ(std::to_string(line["level"].get<int>()), seen.level);
      EXPECT_NE(findings.find(seen.note), std::string::npos) << findings;
    }
    EXPECT_TRUE(found);
    const std::string row =
        cat("| `", seen.fault, "` | ", seen.level, ", ", seen.line, " | ", seen.verdict, " |");
    EXPECT_NE(readme.find(row), std::string::npos) << row;
  }
  std::fflush(stdout);
}

TEST_F(CheckFaults, WithoutOneEverythingPasses) {
  for (const char* program : {TANDEM_PROGRAM, TANDEM_FAULTY}) {
    const nlohmann::json report = check(program, "", 0);
    ASSERT_TRUE(report.is_object());
    for (const auto& line : report["lines"]) EXPECT_EQ(line["verdict"], "PASS") << line.dump();
  }
}

}  // namespace
}  // namespace tandem::faults_test
