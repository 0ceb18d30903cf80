#include "src/check/operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "src/model/loaded_model.hpp"
#include "tests/check/tiny_check.hpp"

namespace tandem::check_test {
namespace {

using Disturb = decltype(OperationSubject::disturb);

class Operations : public testing::TestWithParam<const char*> {
 protected:
  Operations() : model_(load_model(mirror::make_tiny(folder_, GetParam()))), ctx_(2) {
    spec_.lora_rank = 3;
    spec_.lora_dropout = 0.25;
    spec_.seed_dropout = 3;
    spec_.optim_weight_decay = 0.1;
  }
  std::vector<OperationCheck> check(const Disturb& disturb = {}) {
    const LoraLayout lora(model_.config, spec_.lora_rank, spec_.lora_scale(), spec_.lora_targets);
    return check_operations({ctx_, model_.config, model_.weights, lora, spec_, disturb});
  }

  support::TempFolder folder_;
  LoadedModel model_;
  CpuContext ctx_;
  RunSpec spec_;
};

TEST_P(Operations, PassWhereNothingIsWrong) {
  std::set<std::string> names;
  for (const OperationCheck& operation : check()) {
    EXPECT_EQ(operation.verdict(), Verdict::kPass)
        << operation.name << operation.where << " " << operation.error << " of " << operation.alarm;
    EXPECT_LE(operation.alarm, operation.bound) << operation.name;
    EXPECT_TRUE(names.insert(operation.name).second) << operation.name << " is there twice";
  }
  for (const char* name : {"product.qkv",
                           "product.down.dx",
                           "product.gate_up.da",
                           "product.v_proj.db",
                           "product.head",
                           "rms_norm",
                           "rms_norm.dx",
                           "rope.q",
                           "rope.dk",
                           "attention",
                           "attention.log_sum",
                           "attention.dq",
                           "attention.dk",
                           "attention.dv",
                           "swiglu",
                           "swiglu.dgate",
                           "cross_entropy",
                           "cross_entropy.dlogits",
                           "embedding",
                           "scored_rows.dx",
                           "dropout",
                           "dropout.dx",
                           "adamw.step_1.p",
                           "exact_sum.any_order"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(names.contains("bias"), std::string(GetParam()) == "qwen2");
}

TEST_P(Operations, AreNamedWhereOneElementIsFurtherOffThanTheAlarm) {
  for (const OperationCheck& wanted : check()) {
    // Native's own error is below the alarm: twice as much and a bit is above it. Where nothing is allowed,
    // as where dropout leaves a zero, what float32 can tell from it.
    const auto found =
        check([&](const std::string& name, Matrix result, const OperationSubject::Allowed& allowed) {
          if (name != wanted.name) return;
          const std::int64_t r = result.rows - 1, c = result.cols / 2;
          float& x = result.row(r)[c];
          const auto moved =
              static_cast<float>(static_cast<double>(x) + std::max(2.1 * allowed(r, c), 1e-35));
          x = std::nextafter(moved, std::numeric_limits<float>::infinity());
        });
    for (const OperationCheck& operation : found)
      EXPECT_EQ(operation.verdict() != Verdict::kPass, operation.name == wanted.name)
          << operation.name << ": " << wanted.name << " was disturbed";
  }
}

TEST_P(Operations, AreNamedWhereAnElementIsNoNumber) {
  for (const OperationCheck& operation :
       check([](const std::string&, Matrix result, const OperationSubject::Allowed&) {
         result.row(0)[0] = std::numeric_limits<float>::quiet_NaN();
       })) {
    EXPECT_EQ(operation.verdict(), operation.bound == 0.0 ? Verdict::kExact : Verdict::kBound);
    EXPECT_EQ(operation.where, "[0, 0]") << operation.name;
  }
}

TEST_P(Operations, DoNotDependOnThreads) {
  const auto two = check();
  const CpuContext one(1);
  const LoraLayout lora(model_.config, spec_.lora_rank, spec_.lora_scale(), spec_.lora_targets);
  const auto same = check_operations({one, model_.config, model_.weights, lora, spec_, {}});
  ASSERT_EQ(two.size(), same.size());
  for (std::size_t i = 0; i < two.size(); ++i) EXPECT_EQ(two[i].error, same[i].error) << two[i].name;
}

INSTANTIATE_TEST_SUITE_P(Models, Operations, testing::Values("qwen3", "qwen2", "llama", "llama3"),
                         [](const auto& model) { return std::string(model.param); });

TEST(OperationVerdict, SaysWhichLimitWasPassed) {
  OperationCheck check{"x", 0.5, 1.0, 2.0, ""};
  EXPECT_EQ(check.verdict(), Verdict::kPass);
  check.error = 1.5;
  EXPECT_EQ(check.verdict(), Verdict::kCalibrated);
  check.error = 2.5;
  EXPECT_EQ(check.verdict(), Verdict::kBound);
  check = {"exact", 0.0, 0.0, 0.0, ""};
  EXPECT_EQ(check.verdict(), Verdict::kPass);
  check.error = 1e-30;
  EXPECT_EQ(check.verdict(), Verdict::kExact);
}

}  // namespace
}  // namespace tandem::check_test
