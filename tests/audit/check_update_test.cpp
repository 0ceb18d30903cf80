// check_update() passes what is right and names what is not: every field of a job, one at a time.
#include "src/audit/check_update.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "tests/audit/good_update.hpp"

namespace tandem::audit_test {
namespace {

struct Doctored {
  const char* what;
  std::function<void(UpdateJob&)> doctor;
  Verdict verdict;
  const char* note;  // a part of it
};

class CheckUpdate : public testing::Test {
 protected:
  CheckUpdate() : CheckUpdate(make_inputs(folder())) {}
  explicit CheckUpdate(const mirror::Inputs& inputs)
      : mirror_(inputs), thresholds_(calibrate(mirror_, "f32", "")), state_(first_state(mirror_)) {
    first_ = good_update(mirror_, state_, 1);
    second_ = good_update(mirror_, state_, 2);  // every gradient is other than zero
  }
  static const support::TempFolder& folder() {
    static support::TempFolder folder;
    return folder;
  }
  AuditOutcome check(const UpdateJob& job) const { return check_update(mirror_, job, thresholds_); }
  // Elements of tensor p in a flat array.
  std::span<float> tensor(FlatTensors& flat, std::size_t p) const {
    std::size_t begin = 0;
    const auto size = [&](std::size_t i) {
      const auto& t = mirror_.adapter_tensors()[i];
      return static_cast<std::size_t>(t.rows * t.columns);
    };
    for (std::size_t i = 0; i < p; ++i) begin += size(i);
    return std::span(flat).subspan(begin, size(p));
  }
  mirror::Tensors doubles(FlatTensors flat) const {
    mirror::Tensors wide;
    for (std::size_t p = 0; p < mirror_.adapter_tensors().size(); ++p) {
      const auto values = tensor(flat, p);
      wide.emplace_back(values.begin(), values.end());
    }
    return wide;
  }
  void expect(const std::vector<Doctored>& cases, const UpdateJob& good) const {
    ASSERT_EQ(check(good).verdict, Verdict::kPass) << check(good).note;
    for (const Doctored& one : cases) {
      UpdateJob job = good;
      one.doctor(job);
      const AuditOutcome outcome = check(job);
      EXPECT_EQ(outcome.verdict, one.verdict) << one.what << ": " << outcome.note;
      EXPECT_NE(outcome.note.find(one.note), std::string::npos) << one.what << ": " << outcome.note;
    }
  }

  mirror::Mirror mirror_;
  Thresholds thresholds_;
  mirror::AdapterState state_;
  UpdateJob first_, second_;
};

TEST_F(CheckUpdate, PassesWhatIsOnlyRounded) {
  for (const UpdateJob* job : {&first_, &second_}) {
    const AuditOutcome outcome = check(*job);
    EXPECT_EQ(outcome.verdict, Verdict::kPass) << outcome.note;
    EXPECT_EQ(outcome.note, "");
    ASSERT_EQ(outcome.relative_error.size(), mirror_.adapter_tensors().size());
    ASSERT_EQ(outcome.optimizer_error.size(), mirror_.adapter_tensors().size());
    for (std::size_t p = 0; p < outcome.relative_error.size(); ++p) {
      EXPECT_LE(outcome.relative_error[p], 0x1p-23);
      EXPECT_LE(outcome.optimizer_error[p], 0x1p-23);
      EXPECT_GT(outcome.bound[p], 0.0);
    }
    EXPECT_LT(outcome.loss_error, 1e-14);
    EXPECT_LT(outcome.norm_error, 0x1p-23);
  }
}

// A = B = 0: nothing can be learnt, and the two stacks agree on that.
TEST_F(CheckUpdate, AgreesOnGradientsThatAreZero) {
  UpdateJob job = good_update(mirror_, state_, 1);
  for (FlatTensors* flat :
       {&job.adapter, &job.m, &job.v, &job.gradient, &job.adapter_after, &job.m_after, &job.v_after})
    std::fill(flat->begin(), flat->end(), 0.0f);
  job.step = 2, job.steps_before = 1;
  job.sample_ids = mirror_.batch(2);
  job.sample_digests.clear();
  job.lr = mirror_.lr(2);
  job.norm = 0.0, job.clip = mirror_.clip_factor(0.0);
  const mirror::BatchGradient exact =
      mirror_.gradient(mirror::Tensors(mirror_.initial().m), job.sample_ids, 2);
  job.n_targets = exact.n_scored;
  job.loss = exact.nll_sum / static_cast<double>(exact.n_scored);
  const AuditOutcome outcome = check_update(mirror_, job, thresholds_);
  EXPECT_EQ(outcome.verdict, Verdict::kPass) << outcome.note;
  EXPECT_EQ(outcome.norm_error, 0.0);
}

TEST_F(CheckUpdate, CatchesEveryFieldThatIsDoctored) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  expect(
      {
          {"order", [](UpdateJob& j) { std::swap(j.sample_ids[0], j.sample_ids[1]); }, Verdict::kExact,
           "the batch is samples"},
          {"no such sample", [](UpdateJob& j) { j.sample_ids[2] = 600; }, Verdict::kExact,
           "the batch is samples"},
          {"negative sample", [](UpdateJob& j) { j.sample_ids[2] = -1; }, Verdict::kExact, "by the spec"},
          {"short batch", [](UpdateJob& j) { j.sample_ids.pop_back(); }, Verdict::kExact, "by the spec"},
          {"digest", [](UpdateJob& j) { j.sample_digests[1][0] ^= 1; }, Verdict::kExact,
           "has other token ids or target marks"},
          {"count", [](UpdateJob& j) { ++j.n_targets; }, Verdict::kExact, "target tokens, by the spec"},
          {"learning rate", [](UpdateJob& j) { j.lr *= 1 + 1e-12; }, Verdict::kBound, "learning rate"},
          {"loss", [](UpdateJob& j) { j.loss *= 1.00001; }, Verdict::kCalibrated, "loss "},
          {"loss is NaN", [&](UpdateJob& j) { j.loss = nan; }, Verdict::kCalibrated, "loss nan"},
          {"norm", [](UpdateJob& j) { j.norm *= 1 + 1e-10; }, Verdict::kBound, "of its own gradient"},
          {"norm is NaN", [&](UpdateJob& j) { j.norm = nan; }, Verdict::kBound, "gradient norm nan"},
          {"clip", [](UpdateJob& j) { j.clip *= 1 + 1e-12; }, Verdict::kBound, "clip factor"},
          {"base tensor", [](UpdateJob& j) { j.base_tensor->digest[5] ^= 1; }, Verdict::kExact, "in memory"},
          {"configuration", [](UpdateJob& j) { j.config.replace(j.config.find("500.0"), 5, "600.0"); },
           Verdict::kExact, "rope_theta 600.0, by the mirror 500.0"},
          {"no configuration", [](UpdateJob& j) { j.config = "{"; }, Verdict::kExact, "no JSON object"},
          {"state", [](UpdateJob& j) { j.state_kept = false; }, Verdict::kExact, "the update before left"},
          {"moments",
           [](UpdateJob& j) {
             std::fill(j.m.begin(), j.m.end(), 0.0f);
             std::fill(j.v.begin(), j.v.end(), 0.0f);
           },
           Verdict::kExact, "all moments are zero after 1"},
          {"tensor scaled",
           [&](UpdateJob& j) {
             for (float& g : tensor(j.gradient, 3)) g *= 1.001f;
           },
           Verdict::kBound, "gradient is the mirror's times 1.001"},
          {"element",
           [&](UpdateJob& j) {
             const auto g = tensor(j.gradient, 4);
             *std::max_element(g.begin(), g.end()) *= 1.01f;
           },
           Verdict::kBound, "gradient's relative error"},
          {"zero tensor",
           [&](UpdateJob& j) {
             for (float& g : tensor(j.gradient, 5)) g = 0.0f;
           },
           Verdict::kExact, "its gradient is exactly zero"},
          {"NaN in a gradient", [&](UpdateJob& j) { tensor(j.gradient, 2)[1] = static_cast<float>(nan); },
           Verdict::kBound, "gradient's relative error nan"},
      },
      second_);
}

TEST_F(CheckUpdate, CatchesTheOptimisersResultsByTwentyRoundingErrors) {
  const float up = 1.0f + 20 * 0x1p-24f;
  const auto largest = [](FlatTensors& flat) -> float& {
    return *std::max_element(flat.begin(), flat.end());
  };
  expect(
      {{"parameter", [&](UpdateJob& j) { largest(j.adapter_after) *= up; }, Verdict::kBound, "AdamW's step"},
       {"m", [&](UpdateJob& j) { largest(j.m_after) *= up; }, Verdict::kBound, "AdamW's step"},
       {"v", [&](UpdateJob& j) { largest(j.v_after) *= up; }, Verdict::kBound, "AdamW's step"},
       {"step count", [&](UpdateJob& j) { ++j.steps_before; }, Verdict::kBound, "AdamW's step"},
       {"NaN", [&](UpdateJob& j) { j.v_after[7] = std::numeric_limits<float>::quiet_NaN(); }, Verdict::kBound,
        "AdamW's step is off by nan"}},
      second_);
}

// At the first update B = 0: A's gradients are exactly zero.
TEST_F(CheckUpdate, CatchesAFirstUpdateThatStartsFromSomethingElse) {
  expect({{"adapter", [&](UpdateJob& j) { j.adapter[3] = std::nextafter(j.adapter[3], 1.0f); },
           Verdict::kExact, "the first adapter is not the spec's"},
          {"moments", [&](UpdateJob& j) { j.v[3] = 1e-30f; }, Verdict::kExact, "moments are not zero"},
          {"gradient of A", [&](UpdateJob& j) { tensor(j.gradient, 0)[0] = 1e-30f; }, Verdict::kExact,
           "its gradient is not zero"}},
         first_);
}

TEST_F(CheckUpdate, SeesAGradientOfWhichOnlyTheNormIsWrong) {
  UpdateJob job = second_;
  for (float& g : job.gradient) g *= 1.001f;
  double square = 0.0;
  for (const float g : job.gradient) square += static_cast<double>(g) * static_cast<double>(g);
  job.norm = std::sqrt(square);
  job.clip = mirror_.clip_factor(job.norm);
  job.adapter_after.clear();  // not known: not looked at
  const AuditOutcome outcome = check(job);
  EXPECT_EQ(outcome.verdict, Verdict::kCalibrated) << outcome.note;
  EXPECT_NE(outcome.note.find("by the mirror"), std::string::npos) << outcome.note;
  EXPECT_NEAR(outcome.norm_error, 0.001, 1e-6);
  EXPECT_TRUE(outcome.optimizer_error.empty());
}

TEST_F(CheckUpdate, LooksAtTheMicroBatchItIsAskedAbout) {
  UpdateJob job = second_;
  job.scope = AuditScope::kMicroBatch;
  job.micro_batch = 1, job.micro_begin = 2, job.micro_end = 4;
  const mirror::BatchGradient part =
      mirror_.gradient(doubles(job.adapter), std::span(job.sample_ids).subspan(2, 2), 2);
  job.micro_nll = part.nll_sum;
  job.micro_gradient = flat(part.gradient);
  const AuditOutcome good = check(job);
  EXPECT_EQ(good.verdict, Verdict::kPass) << good.note;
  EXPECT_TRUE(std::isnan(good.norm_error));
  job.micro_begin = 1, job.micro_end = 3;
  EXPECT_EQ(check(job).verdict, Verdict::kCalibrated);
}

TEST_F(CheckUpdate, TellsTheGravestFirst) {
  UpdateJob job = second_;
  job.loss *= 1.01, job.lr *= 1.01, ++job.n_targets;
  const std::string note = check(job).note;
  EXPECT_LT(note.find("target tokens"), note.find("learning rate"));
  EXPECT_LT(note.find("learning rate"), note.find("loss "));
}

// Nothing scored: no step, no gradient; anything else is a fault.
TEST(CheckUpdateOfNothing, PassesOnlyWithoutAStep) {
  support::TempFolder folder;
  mirror::Inputs inputs = make_inputs(folder, "llama", {6, 6, 6, 6}, {0, 0, 0, 3},
                                      {{"batch.global", "1"}, {"train.updates", "4"}});
  const mirror::Mirror mirror(inputs);
  const Thresholds thresholds = calibrate(mirror, "f32", "");
  std::int64_t t = 1;
  while (mirror.training_samples()[static_cast<std::size_t>(mirror.batch(t)[0])].n_targets > 0) ++t;
  mirror::AdapterState state = first_state(mirror);
  UpdateJob job = good_update(mirror, state, t);
  job.loss = std::nan(""), job.norm = 0.0, job.clip = 1.0;
  EXPECT_EQ(check_update(mirror, job, thresholds).verdict, Verdict::kPass)
      << check_update(mirror, job, thresholds).note;
  UpdateJob stepped = job;
  stepped.adapter_after[0] *= 1.001f;
  EXPECT_EQ(check_update(mirror, stepped, thresholds).verdict, Verdict::kExact);
  UpdateJob gradient = job;
  gradient.gradient[0] = 1e-30f;
  EXPECT_EQ(check_update(mirror, gradient, thresholds).verdict, Verdict::kExact);
}

// One token of context: softmax over one key, so the gradients of q and k are zero but for rounding, which
// may leave them exactly zero in one stack and not in the other.
TEST(CheckUpdateOfOneKey, TakesRoundingForNothingElse) {
  support::TempFolder folder;
  const mirror::Inputs inputs = make_inputs(folder, "qwen3", {2, 2, 2, 2}, {1, 1, 1, 1});
  const mirror::Mirror mirror(inputs);
  const Thresholds thresholds = calibrate(mirror, "f32", "");
  mirror::AdapterState state = first_state(mirror);
  good_update(mirror, state, 1);
  const UpdateJob good = good_update(mirror, state, 2);
  EXPECT_EQ(check_update(mirror, good, thresholds).verdict, Verdict::kPass)
      << check_update(mirror, good, thresholds).note;
  for (const float value : {0.0f, 1e-14f}) {
    UpdateJob job = good;
    std::size_t begin = 0;
    double square = 0.0;
    for (const auto& tensor : mirror.adapter_tensors()) {
      const auto n = static_cast<std::size_t>(tensor.rows * tensor.columns);
      if (tensor.name.find("q_proj") != std::string::npos)
        std::fill_n(job.gradient.begin() + static_cast<std::ptrdiff_t>(begin), n, value);
      begin += n;
    }
    for (const float g : job.gradient) square += static_cast<double>(g) * static_cast<double>(g);
    job.norm = std::sqrt(square), job.clip = mirror.clip_factor(job.norm);
    job.adapter_after.clear();
    const AuditOutcome outcome = check_update(mirror, job, thresholds);
    EXPECT_EQ(outcome.verdict, Verdict::kPass) << outcome.note;
  }
}

}  // namespace
}  // namespace tandem::audit_test
