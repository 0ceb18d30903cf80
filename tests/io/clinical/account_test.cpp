#include "io/clinical/account.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace tandem {
namespace {

TEST(Account, PercentagesAddUp) {
  for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{1, 1, 1},
                                                 {1},
                                                 {0, 7, 0},
                                                 {3, 3, 1},
                                                 {1, 999'999},
                                                 {2, 3, 5, 7, 11, 13, 17}}) {
    const auto tenths = tenths_of(parts);
    EXPECT_EQ(std::accumulate(tenths.begin(), tenths.end(), std::int64_t{0}), 1000);
    const double sum = static_cast<double>(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}));
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_NEAR(static_cast<double>(tenths[i]), 1000 * static_cast<double>(parts[i]) / sum, 1.0);
  }
}

SourceAccount account(SourceKind kind, std::int64_t train, std::int64_t held_out, std::int64_t duplicates) {
  SourceAccount account;
  account.kind = kind;
  account.file = "f";
  account.rows = train + held_out + duplicates;
  account.fates[static_cast<std::size_t>(Fate::kTrainExplanation)].rows = train;
  account.fates[static_cast<std::size_t>(Fate::kHeldOutAnswer)].rows = held_out;
  account.fates[static_cast<std::size_t>(Fate::kFoldedSameFile)].rows = duplicates;
  return account;
}

TEST(Account, TableIsAlignedAndComplete) {
  PrepareReport report;
  report.sources = {account(SourceKind::kMedqa, 90, 2, 8), account(SourceKind::kMedqa, 1, 0, 0)};
  EXPECT_EQ(table_of(report),
            "medqa: f\n"
            "medqa 2: f\n"
            "\n"
            "                              medqa           medqa 2           all\n"
            "train: explanation               90   90.0 %        1  100.0 %   91   90.1 %\n"
            "held out: answer                  2    2.0 %        0    0.0 %    2    2.0 %\n"
            "duplicate: folded, same file      8    8.0 %        0    0.0 %    8    7.9 %\n"
            "rows                            100  100.0 %        1  100.0 %  101  100.0 %\n"
            "\n");
}

TEST(Account, ComparesWithTheStudyWhereTheRowCountsAreItsOwn) {
  PrepareReport report;
  report.sources = {account(SourceKind::kMedmcqa, 160'000, 3'000, 19'822),
                    account(SourceKind::kMedqa, 8'000, 178, 2'000),
                    account(SourceKind::kPubmedqa, 980, 20, 0)};
  EXPECT_EQ(study_deviation(report),
            "These are the row counts of the study (configs/README.md):\n"
            "          the study    here       deviation\n"
            "train        168574  168980  +406 (+0.24 %)\n"
            "held out       3440    3198  -242 (-7.03 %)\n"
            "left out      21986   21822  -164 (-0.75 %)\n");
  report.sources[2].rows -= 1;
  EXPECT_EQ(study_deviation(report), "");
}

}  // namespace
}  // namespace tandem
