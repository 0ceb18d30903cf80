#include "comm/strain.hpp"

#include <gtest/gtest.h>

#include "src/base/clock.hpp"

namespace tandem {
namespace {

TEST(Strain, SaysWhatCameSinceAndNothingElse) {
  Strain before = strain_now();
  while (now_s() < before.at_s + 0.05) {
  }
  EXPECT_EQ(strain_since(before).find("the thread had a CPU "), 0u);
  EXPECT_EQ(strain_since(before).find("throttled"), std::string::npos);
  EXPECT_LT(severity_since(before), 1.5);
  before.thread_delay_s -= 0.5 * (now_s() - before.at_s);
  before.major_faults -= 1;
  before.throttled -= 3;
  before.throttled_s -= 1.5;
  before.memory_short -= 2;
  before.involuntary -= 100;
  before.swapped_in_pages -= 7;
  const std::string all = strain_since(before);
  EXPECT_GT(severity_since(before), 1.5) << "1.5 s without CPU time of the group";
  for (const char* text :
       {"stood in the queue for one ", "major page fault", "swapped-in page",
        "the control group's CPU time ran out 3 times, for 1.50 s",
        "the control group's memory limit was met 2 times", " involuntary context switches", "load average "})
    EXPECT_NE(all.find(text), std::string::npos) << text << ": " << all;
}

}  // namespace
}  // namespace tandem
