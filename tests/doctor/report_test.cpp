#include "src/doctor/report.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace tandem {
namespace {

// A world in which the other ranks say what the test wants them to.
class Others final : public Communicator {
 public:
  explicit Others(std::vector<std::string> others) : others_(std::move(others)) {}
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(others_.size()) + 1; }
  void all_reduce_sum(std::span<std::int64_t>) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override {}
  std::vector<std::string> all_gather_text(std::string_view mine) override {
    std::vector<std::string> all = {std::string(mine)};
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }
  void broadcast(std::span<std::byte>, int) override {}
  void transfer(std::span<std::byte>, int, int) override {}
  void barrier() override {}
  std::unique_ptr<Communicator> node() override { return nullptr; }

  std::vector<std::string> others_;
};

constexpr const char* kHosts[] = {"b", "b", "c"};

TEST(DoctorReport, NamesTheRanksAndHostsThatDiffer) {
  Others ranks({kHosts[0], kHosts[1], kHosts[2]});
  std::ostringstream out;
  Report report(ranks, "a", out);
  // "0": ok; the second figure is the kind, as ranks send it.
  ranks.others_ = {"04fits", "04fits", "04fits"};
  report.add("alike", ok("fits"));
  ranks.others_ = {"04fits", "14slow", "24broken"};
  report.add("mixed", ok("fits"));
  EXPECT_EQ(out.str(),
            "ok    alike       fits\n"
            "ok    mixed       ranks 0-1 on a, b: fits\n"
            "note  mixed       rank 2 on b: slow\n"
            "FAIL  mixed       rank 3 on c: broken\n");
  EXPECT_EQ(report.exit_code(), 4);
}

TEST(DoctorReport, WhatMustBeEqualFailsWhereItIsNot) {
  Others ranks({kHosts[0], kHosts[1], kHosts[2]});
  std::ostringstream out;
  Report report(ranks, "a", out);
  ranks.others_ = {"04v1", "04v1", "04v2"};
  report.add_equal("may", ok("v1"), "or not", true);
  EXPECT_EQ(report.exit_code(), 0);
  report.add_equal("must", ok("v1"), "install one");
  EXPECT_EQ(report.exit_code(), 4);
  EXPECT_EQ(out.str(),
            "note  may         ranks 0-2 on a, b: v1: differs between ranks: or not\n"
            "note  may         rank 3 on c: v2: differs between ranks: or not\n"
            "FAIL  must        ranks 0-2 on a, b: v1: differs between ranks: install one\n"
            "FAIL  must        rank 3 on c: v2: differs between ranks: install one\n");
}

TEST(DoctorReport, TheFirstFailureGivesTheCodeAndSilenceNoLine) {
  SingleCommunicator alone;
  std::ostringstream out;
  Report report(alone, "a", out);
  report.add("nothing", std::nullopt);
  report.add("folder", failure(ErrorKind::kInput, "two\nlines"));
  report.add("network", failure(ErrorKind::kDevice, "x"));
  EXPECT_EQ(out.str(), "FAIL  folder      two lines\nFAIL  network     x\n");
  EXPECT_EQ(report.exit_code(), 3);
}

}  // namespace
}  // namespace tandem
