// Updates and evaluations of a tiny model in one process.
#include "src/train/trainer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>

#include "src/base/error.hpp"
#include "tests/support/faulty_communicator.hpp"
#include "tests/train/tiny_run.hpp"

namespace tandem {
namespace {

using support::make_samples;
using train_test::spec_of;
using train_test::TinyRun;

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2.0);
    norm += std::pow(static_cast<double>(b[i]), 2.0);
  }
  return std::sqrt(difference / norm);
}

TEST(Trainer, GradientOfEveryAIsExactlyZeroWhileBIsZero) {
  for (const char* type : {"qwen3", "llama"}) {
    TinyRun run(make_samples({20, 9, 31}, {12, 4, 20}), spec_of(3), 2, {}, 2, nullptr, type);
    run.update(1);
    for (std::size_t i = 0; i < run.lora.tensors().size(); ++i) {
      const bool a = run.lora.tensors()[i].name.find("lora_A") != std::string::npos;
      EXPECT_EQ(run.trainer->tensor_norms()[i] == 0.0, a) << run.lora.tensors()[i].name;
    }
  }
}

// The mean is over the scored tokens of the whole global batch, however it is cut (1 and 5 answer tokens).
// Tolerance: the same sums in another order; d of float32 products is near sqrt(K) u, a few 1e-7.
TEST(Trainer, MicroBatchesOfAnySizeGiveTheSameLossAndGradient) {
  const SampleSet samples = make_samples({14, 11, 40, 7}, {1, 5, 30, 2});
  TinyRun whole(samples, spec_of(4), 4), halves(samples, spec_of(4), 2), single(samples, spec_of(4), 1);
  for (std::int64_t t = 1; t <= 2; ++t) {
    const UpdateResult a = whole.update(t), b = halves.update(t), c = single.update(t);
    EXPECT_EQ(a.n_targets, 38);
    EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
    EXPECT_NEAR(a.loss, c.loss, 1e-6 * a.loss);
    if (t > 1) continue;  // later adapters differ by Adam's amplified rounding
    EXPECT_LE(relative_difference(halves.gradient(), whole.gradient()), 5e-6);
    EXPECT_LE(relative_difference(single.gradient(), whole.gradient()), 5e-6);
  }
}

TEST(Trainer, ThreadsAndDealingChangeNoBit) {
  const SampleSet samples = make_samples({14, 11, 40, 7, 23, 66}, {1, 5, 30, 0, 10, 60});
  TinyRun one(samples, spec_of(5), 2, samples, 1), four(samples, spec_of(5), 2, samples, 4);
  for (std::int64_t t = 1; t <= 4; ++t) {
    const UpdateResult a = one.update(t), b = four.update(t);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.checksum, b.checksum);
    EXPECT_EQ(a.adapter_checksum, b.adapter_checksum);
  }
  EXPECT_EQ(one.adapter(), four.adapter());
  EXPECT_EQ(one.trainer->evaluate(true).nll_sum, four.trainer->evaluate(true).nll_sum);
}

TEST(Trainer, AnUpdateWithoutTargetsMakesNoStep) {
  // One sample an update; one of the three has nothing to score.
  const SampleSet samples = make_samples({10, 8, 9}, {5, 0, 4});
  TinyRun run(samples, spec_of(1, 3), 1);
  std::int64_t steps = 0;
  bool met = false;
  for (std::int64_t t = 1; t <= 3; ++t) {
    const auto before = run.adapter();
    const UpdateResult result = run.update(t);
    if (result.sample_ids[0] == 1) {
      met = true;
      EXPECT_TRUE(std::isnan(result.loss));
      EXPECT_EQ(result.n_targets, 0);
      EXPECT_EQ(result.grad_norm, 0.0);
      EXPECT_EQ(result.clip, 1.0);
      EXPECT_EQ(before, run.adapter());
    } else {
      ++steps;
      EXPECT_TRUE(std::isfinite(result.loss));
    }
    EXPECT_EQ(run.trainer->steps_made(), steps);
  }
  EXPECT_TRUE(met);
  EXPECT_EQ(steps, 2);
}

TEST(Trainer, EvaluationLeavesTrainingAloneAndIsTheBaseModelsAtFirst) {
  const SampleSet samples = make_samples({14, 11, 40}, {10, 5, 30}),
                  held_out = make_samples({30, 5, 17}, {20, 3, 9}, 11);
  TinyRun plain(samples, spec_of(2), 2, held_out), evaluated(samples, spec_of(2), 2, held_out);
  EXPECT_EQ(evaluated.trainer->evaluate(true).nll_sum, evaluated.trainer->evaluate(false).nll_sum);
  for (std::int64_t t = 1; t <= 3; ++t) {
    const UpdateResult a = plain.update(t), b = evaluated.update(t);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.adapter_checksum, b.adapter_checksum);
    const EvalResult once = evaluated.trainer->evaluate(true), again = evaluated.trainer->evaluate(true);
    EXPECT_EQ(once.nll_sum, again.nll_sum);
    EXPECT_EQ(once.n_tokens, 32);
    EXPECT_NE(once.nll_sum, evaluated.trainer->evaluate(false).nll_sum);
  }
}

TEST(Trainer, PackingChangesAHeldOutLossByRoundingOnly) {
  const SampleSet samples = make_samples({14, 11}, {10, 5}),
                  held_out = make_samples({30, 5, 17, 64, 3}, {20, 3, 9, 60, 1}, 11);
  TinyRun packed(samples, spec_of(2), 5, held_out), alone(samples, spec_of(2), 1, held_out);
  const double a = packed.trainer->evaluate(true).nll_sum, b = alone.trainer->evaluate(true).nll_sum;
  EXPECT_NEAR(a, b, 1e-6 * a);
}

TEST(Trainer, GradientsStopAtTheLowestAdapter) {
  // The same tensor's gradient whether or not there are adapters below it.
  const SampleSet samples = make_samples({14, 11, 40}, {10, 5, 30});
  for (const char* target : {"down", "gate", "o", "v"}) {
    RunSpec few = spec_of(3), all = spec_of(3);
    few.lora_targets = {target};
    TinyRun some(samples, few, 3), every(samples, all, 3);
    some.update(1);
    every.update(1);
    for (std::size_t i = 0; i < some.lora.tensors().size(); ++i) {
      const auto& tensors = every.lora.tensors();
      const auto same = std::find_if(tensors.begin(), tensors.end(), [&](const LoraTensor& t) {
        return t.name == some.lora.tensors()[i].name;
      });
      const double want = every.trainer->tensor_norms()[static_cast<std::size_t>(same - tensors.begin())];
      EXPECT_NEAR(some.trainer->tensor_norms()[i], want, 1e-6 * want) << same->name;
    }
  }
}

TEST(Trainer, RecomputedLayersHaveTheSameBits) {
  const SampleSet samples = make_samples({14, 11, 40}, {10, 5, 30});
  for (const double dropout : {0.0, 0.4}) {
    RunSpec spec = spec_of(3);
    spec.lora_dropout = dropout;
    for (const std::int64_t n : {1, 2, 3}) {
      TinyRun again(samples, spec, 2, samples, 1, nullptr, "qwen3", n);
      TinyRun fresh(samples, spec, 2, samples);
      for (std::int64_t t = 1; t <= 3; ++t)
        EXPECT_EQ(again.update(t).adapter_checksum, fresh.update(t).adapter_checksum) << n << " layers";
    }
  }
}

TEST(Trainer, DropoutDependsOnSampleAndUpdateNotOnPackingAndIsOffInEvaluation) {
  const SampleSet samples = make_samples({14, 11, 40}, {10, 5, 30});
  RunSpec spec = spec_of(3), without = spec_of(3);
  spec.lora_dropout = 0.5;
  TinyRun packed(samples, spec, 3, samples), alone(samples, spec, 1, samples),
      plain(samples, without, 3, samples);
  packed.update(1), alone.update(1), plain.update(1);
  // B's gradient is made of dropped inputs: the same for any packing, up to rounding, and far from the plain
  // one.
  EXPECT_LE(relative_difference(alone.gradient(), packed.gradient()), 5e-6);
  EXPECT_GE(relative_difference(plain.gradient(), packed.gradient()), 0.05);
  EXPECT_EQ(packed.trainer->evaluate(true).nll_sum, packed.trainer->evaluate(true).nll_sum);
}

TEST(Trainer, AChangedLimbIsCaughtInThatUpdate) {
  const SampleSet samples = make_samples({14, 11, 40}, {10, 5, 30});
  const auto n = static_cast<std::size_t>(TinyRun(samples, spec_of(3), 2).lora.size());
  for (const auto kind :
       {support::Fault::Kind::kFlip, support::Fault::Kind::kLose, support::Fault::Kind::kDouble}) {
    SingleCommunicator inner;
    support::Fault fault;
    fault.kind = kind;
    fault.call = 1;
    fault.limb = n;  // the loss's high limb, which is never 0
    support::FaultyCommunicator comm(inner, fault);
    TinyRun run(samples, spec_of(3), 2, {}, 1, &comm);
    run.update(1);
    try {
      run.update(2);
      ADD_FAILURE() << "not caught";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice);
      EXPECT_NE(std::string(error.what()).find("update 2"), std::string::npos) << error.what();
    }
  }
}

TEST(Trainer, ANonFiniteLossNamesUpdateSamplesAndLines) {
  RunSpec spec = spec_of(2);
  spec.optim_lr = 1e30;
  spec.optim_warmup = 0;
  TinyRun run(make_samples({14, 11, 40}, {10, 5, 30}), spec, 2);
  run.update(1);
  try {
    run.update(2);
    ADD_FAILURE() << "not caught";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("not finite"), std::string::npos) << text;
    EXPECT_NE(text.find("update 2, samples "), std::string::npos) << text;
    EXPECT_NE(text.find("lines "), std::string::npos) << text;
  }
}

TEST(Trainer, AnUpdateTouchesNoNewMemory) {
  const SampleSet samples = make_samples({140, 110, 400, 300}, {100, 50, 300, 250});
  TinyRun run(samples, spec_of(4, 40), 2, {}, 2);
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  for (std::int64_t t = 1; t <= 5; ++t) run.update(t);
  const long before = faults();
  for (std::int64_t t = 6; t <= 25; ++t) run.update(t, t % 2 == 0);
  // A page of activations alone would be hundreds: 256 tokens x 48 x 4 bytes x layers. Stray pages of the
  // libraries' heaps are allowed for.
  EXPECT_LE(faults() - before, 20 * 8);
}

}  // namespace
}  // namespace tandem
