// What evaluations record beside the loss: the probe's tokens, logits and activations, the adapter's norms.
#include "src/train/probe.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "src/base/error.hpp"
#include "src/train/adapter_norms.hpp"
#include "tests/support/faulty_communicator.hpp"
#include "tests/train/tiny_run.hpp"

namespace tandem {
namespace {

using support::make_samples;
using train_test::spec_of;
using train_test::TinyRun;

// Four samples: targets apart from each other, none, in the first token alone, at the end.
SampleSet ragged() {
  SampleSet samples;
  const auto add = [&](std::vector<std::int32_t> ids, std::vector<std::uint8_t> marks) {
    samples.add(ids, marks, samples.size() + 1);
  };
  add({11, 12, 13, 14, 15, 16}, {1, 1, 0, 1, 0, 0});
  add({21, 22, 23}, {0, 0, 0});
  add({31, 32}, {1, 0});
  add({41, 42, 43, 44, 45}, {0, 0, 1, 1, 1});
  return samples;
}

const SampleSet kTrain = make_samples({14, 11, 40}, {10, 5, 30});

TinyRun run_on(const SampleSet& held_out, std::int64_t micro, std::int64_t probe, int threads = 1,
               Communicator* comm = nullptr) {
  return TinyRun(kTrain, spec_of(2), micro, held_out, threads, comm, "qwen3", 0, probe);
}

std::vector<double> copy(std::span<const double> values) { return {values.begin(), values.end()}; }

TEST(Probe, LooksAtTheFirstScoredTokens) {
  const ProbeTokens all = probe_tokens(ragged(), 512);
  EXPECT_EQ(all.sample, (std::vector<std::int64_t>{0, 0, 3, 3, 3}));
  EXPECT_EQ(all.position, (std::vector<std::int64_t>{1, 3, 2, 3, 4}));
  EXPECT_EQ(all.target, (std::vector<std::int64_t>{12, 14, 43, 44, 45}));
  const ProbeTokens cut = probe_tokens(ragged(), 3);
  EXPECT_EQ(cut.sample, (std::vector<std::int64_t>{0, 0, 3}));
  EXPECT_EQ(cut.target, (std::vector<std::int64_t>{12, 14, 43}));
  EXPECT_EQ(probe_tokens(ragged(), 0).size(), 0);
}

// Logits come from a model of its own that packs the samples alike, in the very same bits; the loss from its
// definition, its float rounded once more.
TEST(Probe, HasTheLossAndTheLargestLogitsOfEachToken) {
  const SampleSet held_out = make_samples({30, 5, 17, 9}, {20, 3, 0, 9}, 11);
  for (const std::int64_t micro : {1, 2, 4}) {
    TinyRun run = run_on(held_out, micro, 25, 2);
    run.update(1), run.update(2);
    (void)run.trainer->evaluate(true);
    const ProbeRow row = run.trainer->probe()->row();
    ASSERT_EQ(row.nll.size(), 25u);
    std::size_t n = 0;
    for (std::int64_t begin = 0; begin < held_out.size(); begin += micro) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(micro, held_out.size() - begin)));
      std::iota(indices.begin(), indices.end(), begin);
      MicroBatch batch;
      batch.pack(held_out, indices);
      Transformer model(run.ctx, run.config, run.weights.views(), run.lora,
                        {0, 0, batch.n_tokens(), batch.n_scored(), 30});
      model.allocate();
      std::vector<float> values(static_cast<std::size_t>(batch.n_scored() * run.config.vocab_size));
      const Matrix logits(values.data(), batch.n_scored(), run.config.vocab_size);
      model.logits(run.trainer->adapter(), batch, logits);
      for (std::int64_t i = 0; i < batch.n_scored() && n < 25; ++i, ++n) {
        const float* x = logits.row(i);
        std::vector<std::int64_t> order(static_cast<std::size_t>(logits.cols));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return x[a] > x[b]; });
        for (std::size_t k = 0; k < 8; ++k) {
          EXPECT_EQ(row.topk_id[8 * n + k], order[k]);
          EXPECT_EQ(row.topk_logit[8 * n + k], static_cast<double>(x[order[k]]));
        }
        const auto target = batch.target[static_cast<std::size_t>(i)];
        EXPECT_EQ(row.target_logit[n], static_cast<double>(x[target]));
        double sum = 0.0;
        for (std::int64_t v = 0; v < logits.cols; ++v) sum += std::exp(static_cast<double>(x[v]));
        const double nll = std::log(sum) - static_cast<double>(x[target]);
        // Each exponential within 2^-23 of itself (kernels/cpu/vector_math.hpp), the result rounded to float.
        EXPECT_NEAR(row.nll[n], nll, 0x1p-23 + 0x1p-24 * nll);
      }
    }
    EXPECT_EQ(n, 25u);
  }
}

// The whole set's probe is the evaluation, token by token. Tolerance: additions in double.
TEST(Probe, OfAllTokensAddsUpToTheEvaluation) {
  TinyRun run = run_on(ragged(), 3, 512);
  run.update(1);
  const EvalResult result = run.trainer->evaluate(true);
  const ProbeRow row = run.trainer->probe()->row();
  ASSERT_EQ(static_cast<std::int64_t>(row.nll.size()), result.n_tokens);
  EXPECT_NEAR(std::accumulate(row.nll.begin(), row.nll.end(), 0.0), result.nll_sum, 1e-14 * result.nll_sum);
}

// Without what attention and MLP add, the residual stream is the embedding after every layer: known exactly.
TEST(Probe, ActivationsAreThoseOfThePositionsUpToTheLastPrediction) {
  for (const std::int64_t most : {512, 4, 1}) {
    TinyRun run = run_on(ragged(), 2, most);
    for (std::int64_t l = 0; l < run.config.n_layers; ++l)
      for (const Group group : {kOut, kDown}) {
        const ConstMatrix w = run.weights.layer(l).fused[group];
        std::memset(const_cast<float*>(w.data), 0, static_cast<std::size_t>(w.rows * w.cols) * sizeof(float));
      }
    (void)run.trainer->evaluate(true);
    std::vector<std::int32_t> seen = {11};          // predicts 12
    if (most > 1) seen = {11, 12, 13, 41, 42, 43};  // ... 14, 43 and 44
    if (most > 4) seen.push_back(44);               // ... and 45
    double squares = 0.0, largest = 0.0;
    for (const std::int32_t id : seen)
      for (std::int64_t c = 0; c < run.config.hidden; ++c) {
        const auto x = static_cast<double>(run.weights.embedding().row(id)[c]);
        squares += x * x;
        largest = std::max(largest, std::abs(x));
      }
    const double rms =
        std::sqrt(squares / static_cast<double>(static_cast<std::int64_t>(seen.size()) * run.config.hidden));
    const ProbeRow row = run.trainer->probe()->row();
    ASSERT_EQ(static_cast<std::int64_t>(row.rms.size()), run.config.n_layers);
    for (std::size_t l = 0; l < row.rms.size(); ++l) {
      EXPECT_NEAR(row.rms[l], rms, 1e-14 * rms) << most << " tokens, layer " << l;
      EXPECT_EQ(row.absmax[l], largest);
    }
  }
}

TEST(Probe, LayersDifferAndTheAdapterIsSeen) {
  TinyRun run = run_on(ragged(), 2, 512);
  (void)run.trainer->evaluate(true);
  const auto before = copy(run.trainer->probe()->row().rms);
  for (std::size_t l = 1; l < before.size(); ++l) EXPECT_NE(before[l], before[l - 1]);
  run.update(1), run.update(2);
  (void)run.trainer->evaluate(true);
  const auto after = copy(run.trainer->probe()->row().rms);
  for (std::size_t l = 0; l < before.size(); ++l) EXPECT_NE(before[l], after[l]);
  (void)run.trainer->evaluate(false);
  EXPECT_EQ(copy(run.trainer->probe()->row().rms), after)
      << "an evaluation without the adapter is not looked at";
}

TEST(Probe, ChangesNoBitOfTrainingOrEvaluation) {
  const SampleSet held_out = make_samples({30, 5, 17}, {20, 3, 9}, 11);
  TinyRun with = run_on(held_out, 2, 512), without = run_on(held_out, 2, 0);
  EXPECT_FALSE(without.trainer->probe().has_value());
  for (std::int64_t t = 1; t <= 4; ++t) {
    const UpdateResult a = with.update(t, true), b = without.update(t);
    EXPECT_EQ(a.checksum, b.checksum);
    EXPECT_EQ(a.adapter_checksum, b.adapter_checksum);
    EXPECT_EQ(with.trainer->evaluate(true).nll_sum, without.trainer->evaluate(true).nll_sum);
    (void)with.trainer->ba_norms();
  }
}

TEST(Probe, HasTheSameBitsOnAnyNumberOfThreads) {
  const SampleSet held_out = make_samples({30, 5, 17, 64}, {20, 3, 9, 60}, 11);
  TinyRun one = run_on(held_out, 2, 80), four = run_on(held_out, 2, 80, 4);
  one.update(1, true), four.update(1, true);
  (void)one.trainer->evaluate(true), (void)four.trainer->evaluate(true);
  const ProbeRow a = one.trainer->probe()->row(), b = four.trainer->probe()->row();
  EXPECT_EQ(copy(a.nll), copy(b.nll));
  EXPECT_EQ(copy(a.topk_logit), copy(b.topk_logit));
  EXPECT_EQ(copy(a.rms), copy(b.rms));
  EXPECT_EQ(copy(a.absmax), copy(b.absmax));
  EXPECT_EQ(copy(one.trainer->ba_norms()), copy(four.trainer->ba_norms()));
  EXPECT_EQ(copy(one.trainer->update_norms()), copy(four.trainer->update_norms()));
}

TEST(Probe, AContributionThatIsLostIsCaught) {
  SingleCommunicator inner;
  support::Fault fault;
  fault.kind = support::Fault::Kind::kLose;
  fault.call = 1;  // after the evaluation's sum
  fault.limb = 0;
  support::FaultyCommunicator comm(inner, fault);
  TinyRun run = run_on(ragged(), 2, 512, 1, &comm);
  try {
    (void)run.trainer->evaluate(true);
    ADD_FAILURE() << "not caught";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_EQ(std::string(error.what()).rfind("the probe: the all-reduce of ", 0), 0u) << error.what();
  }
}

TEST(AdapterNorms, UpdateNormsAreThoseOfTheStepJustMade) {
  // One sample an update; the second has nothing to score.
  const SampleSet samples = make_samples({10, 8, 9}, {5, 0, 4});
  TinyRun run(samples, spec_of(1, 4), 1);
  std::int64_t steps = 0;
  for (const double norm : run.trainer->update_norms()) EXPECT_EQ(norm, 0.0);
  for (std::int64_t t = 1; t <= 3; ++t) {
    const std::vector<float> before = run.adapter();
    const bool scored = run.update(t, true).n_targets > 0;
    steps += scored ? 1 : 0;
    const std::vector<float> after = run.adapter();
    for (std::size_t i = 0; i < run.lora.tensors().size(); ++i) {
      const LoraTensor& tensor = run.lora.tensors()[i];
      double squares = 0.0;
      for (std::int64_t k = tensor.offset; k < tensor.offset + tensor.size(); ++k) {
        const auto at = static_cast<std::size_t>(k);
        squares += std::pow(static_cast<double>(after[at]) - static_cast<double>(before[at]), 2.0);
      }
      const double norm = std::sqrt(squares);
      EXPECT_EQ(norm > 0.0, scored && (steps > 1 || tensor.name.ends_with("lora_B.weight"))) << tensor.name;
      EXPECT_NEAR(run.trainer->update_norms()[i], norm, 1e-13 * norm) << tensor.name;
    }
  }
  const auto last = copy(run.trainer->update_norms());
  run.update(3);
  EXPECT_EQ(copy(run.trainer->update_norms()), last) << "an update that is not observed";
}

TEST(AdapterNorms, BaNormsAreThoseOfTheFormedMatrices) {
  RunSpec spec = spec_of(3);
  spec.lora_targets = {"q", "v", "down"};
  TinyRun run(kTrain, spec, 3);
  for (const double norm : run.trainer->ba_norms()) EXPECT_EQ(norm, 0.0) << "B is 0";
  for (std::int64_t t = 1; t <= 3; ++t) run.update(t);
  const auto norms = copy(run.trainer->ba_norms());
  const auto& tensors = run.lora.tensors();
  ASSERT_EQ(norms.size(), tensors.size() / 2);
  const std::vector<float> p = run.adapter();
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const LoraTensor &a = tensors[2 * i], &b = tensors[2 * i + 1];
    ASSERT_EQ(a.name.substr(0, a.name.size() - 13), b.name.substr(0, b.name.size() - 13));
    ASSERT_TRUE(a.name.ends_with(".lora_A.weight") && b.name.ends_with(".lora_B.weight"));
    double squares = 0.0;
    for (std::int64_t o = 0; o < b.rows; ++o)
      for (std::int64_t c = 0; c < a.cols; ++c) {
        double y = 0.0;
        for (std::int64_t k = 0; k < a.rows; ++k)
          y += static_cast<double>(p[static_cast<std::size_t>(b.offset + o * b.cols + k)]) *
               static_cast<double>(p[static_cast<std::size_t>(a.offset + k * a.cols + c)]);
        squares += y * y;
      }
    const double norm = spec.lora_scale() * std::sqrt(squares);  // 2, exact in float
    EXPECT_GT(norm, 0.0);
    // Sums of products in double, whose terms are far from cancelling here.
    EXPECT_NEAR(norms[i], norm, 1e-12 * norm) << a.name;
  }
}

}  // namespace
}  // namespace tandem
