// The mirror as a whole: what a run is made of, on tiny models.
#include "src/mirror/mirror.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "src/base/error.hpp"
#include "src/mirror/optimizer.hpp"
#include "tests/mirror/tiny.hpp"

namespace tandem::mirror {
namespace {

class MirrorRun : public testing::Test {
 protected:
  Inputs inputs(const std::string& kind = "qwen3", int threads = 1) {
    return {"",
            make_tiny(folder, kind),
            make_rows(folder, "train", {9, 5, 12, 7, 3, 8, 10}, {6, 2, 12, 1, 0, 8, 4}),
            make_rows(folder, "held_out", {8, 6, 11}, {5, 0, 11}),
            {},
            threads};
  }
  Mirror make(const std::map<std::string, std::string>& keys = {}, const std::string& kind = "qwen3",
              int threads = 1) {
    Inputs given = inputs(kind, threads);
    given.spec_text = tiny_spec(given, keys);
    return Mirror(std::move(given));
  }
  void expect_error(Inputs given, ErrorKind kind, const std::string& part) {
    try {
      const Mirror mirror(std::move(given));
      FAIL() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  support::TempFolder folder;
};

TEST_F(MirrorRun, TakesEverySampleOnceAnEpochAndEndsItWithAShortBatch) {
  const Mirror mirror = make();
  std::multiset<std::int64_t> seen;
  EXPECT_EQ(mirror.batch(1).size(), 4u);
  EXPECT_EQ(mirror.batch(2).size(), 3u);
  for (const std::int64_t t : {1, 2})
    for (const std::int64_t id : mirror.batch(t)) seen.insert(id);
  EXPECT_EQ(seen, (std::multiset<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  const auto first = mirror.batch(1);
  EXPECT_NE(first, mirror.batch(3)) << "another epoch, another order";
  EXPECT_EQ(first, mirror.batch(1)) << "asked again";
  EXPECT_THROW(mirror.batch(0), Error);
  EXPECT_THROW(mirror.batch(7), Error);
}

TEST_F(MirrorRun, DescribesItsSamples) {
  const Mirror mirror = make();
  ASSERT_EQ(mirror.training_samples().size(), 7u);
  EXPECT_EQ(mirror.training_samples()[2].n_ids, 12);
  EXPECT_EQ(mirror.training_samples()[2].n_targets, 11) << "token 0 is never scored";
  EXPECT_EQ(mirror.training_samples()[4].n_targets, 0);
  EXPECT_EQ(mirror.training_samples()[4].last_target_id, -1);
  EXPECT_EQ(mirror.template_digest(), "");
}

TEST_F(MirrorRun, HasTheSameBitsForAnyNumberOfThreads) {
  const Mirror one = make({{"lora.dropout", "0.2"}}, "qwen3", 1),
               four = make({{"lora.dropout", "0.2"}}, "qwen3", 4);
  const Tensors adapter = random_adapter(one);
  const auto a = one.gradient(adapter, one.batch(1), 1), b = four.gradient(adapter, four.batch(1), 1);
  EXPECT_EQ(a.nll_sum, b.nll_sum);
  EXPECT_EQ(a.n_scored, b.n_scored);
  EXPECT_EQ(a.gradient, b.gradient);
  EXPECT_EQ(one.evaluate(&adapter).nll_sum, four.evaluate(&adapter).nll_sum);
  const Probe p = one.probe(adapter), q = four.probe(adapter);
  EXPECT_EQ(p.activation_rms, q.activation_rms);
  EXPECT_EQ(p.nll, q.nll);
}

TEST_F(MirrorRun, GradientOfABatchIsTheSumOfItsSamples) {
  const Mirror mirror = make();
  const Tensors adapter = random_adapter(mirror);
  const std::vector<std::int64_t> ids = {2, 4, 0};
  const auto whole = mirror.gradient(adapter, ids, 1);
  double nll = 0, first = 0;
  for (const std::int64_t id : ids) {
    const auto one = mirror.gradient(adapter, std::vector<std::int64_t>{id}, 1);
    nll += one.nll_sum;
    first += one.gradient[0][0];
  }
  EXPECT_DOUBLE_EQ(whole.nll_sum, nll);
  EXPECT_EQ(whole.gradient[0][0], first);
  EXPECT_EQ(whole.n_scored, 11 + 0 + 6);
}

TEST_F(MirrorRun, StartsWithTheGradientOfAAtExactlyZero) {
  const Mirror mirror = make();
  const auto batch = mirror.gradient(mirror.initial().adapter, mirror.batch(1), 1);
  for (std::size_t p = 0; p < batch.gradient.size(); ++p) {
    const bool all_zero =
        std::all_of(batch.gradient[p].begin(), batch.gradient[p].end(), [](double g) { return g == 0; });
    EXPECT_EQ(all_zero, p % 2 == 0) << mirror.adapter_tensors()[p].name;
  }
}

TEST_F(MirrorRun, EvaluatesTheUntrainedAdapterAsNone) {
  const Mirror mirror = make();
  const Tensors untrained = mirror.initial().adapter, other = random_adapter(mirror);
  const Evaluation off = mirror.evaluate(nullptr);
  EXPECT_EQ(off.n_tokens, 5 + 10);
  EXPECT_EQ(off.nll_sum, mirror.evaluate(&untrained).nll_sum);
  EXPECT_NE(off.nll_sum, mirror.evaluate(&other).nll_sum);
}

TEST_F(MirrorRun, TellsEveryScoredTokenInOrder) {
  const Mirror mirror = make();
  double sum = 0;
  std::vector<ProbeToken> tokens;
  const auto each = [&](const ProbeToken& token, double nll) {
    tokens.push_back(token);
    sum += nll;
  };
  EXPECT_EQ(mirror.evaluate(nullptr, each).nll_sum, sum);
  ASSERT_EQ(tokens.size(), mirror.probe_tokens().size()) << "few enough to be the whole probe";
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    EXPECT_EQ(tokens[k].sample, mirror.probe_tokens()[k].sample);
    EXPECT_EQ(tokens[k].position, mirror.probe_tokens()[k].position);
    EXPECT_EQ(tokens[k].target, mirror.probe_tokens()[k].target);
  }
}

TEST_F(MirrorRun, ProbesWithTheLogitsThatTheLossComesFrom) {
  const Mirror mirror = make();
  const Tensors adapter = random_adapter(mirror);
  const Probe probe = mirror.probe(adapter);
  std::vector<double> nll;
  mirror.evaluate(&adapter, [&](const ProbeToken&, double value) { nll.push_back(value); });
  EXPECT_EQ(probe.nll, nll);
  ASSERT_EQ(probe.top_logit.size(), nll.size() * Probe::kTop);
  for (std::size_t k = 0; k < nll.size(); ++k)
    for (std::size_t j = 1; j < Probe::kTop; ++j)
      EXPECT_GE(probe.top_logit[k * Probe::kTop + j - 1], probe.top_logit[k * Probe::kTop + j]);
  // nll + target_logit is the logarithm of all exponentials' sum, the eight largest are most of it.
  for (std::size_t k = 0; k < nll.size(); ++k) {
    double sum = 0;
    for (std::size_t j = 0; j < Probe::kTop; ++j)
      sum += std::exp(probe.top_logit[k * Probe::kTop + j] - nll[k] - probe.target_logit[k]);
    EXPECT_LE(sum, 1);
    EXPECT_GT(sum, Probe::kTop / 40.0);
    EXPECT_LE(probe.target_logit[k], probe.top_logit[k * Probe::kTop]);
  }
  EXPECT_EQ(probe.activation_rms.size(), 2u);
  EXPECT_GT(probe.activation_absmax[0], probe.activation_rms[0]);
  EXPECT_EQ(probe.ba_norm.size(), mirror.modules().size());
  EXPECT_EQ(mirror.probe(mirror.initial().adapter).ba_norm[0], 0);
}

TEST_F(MirrorRun, ProbesAsManyTokensAsItIsAskedTo) {
  Inputs given = inputs();
  given.probe = 3;
  given.spec_text = tiny_spec(given);
  const Mirror three(given);
  EXPECT_EQ(three.probe(three.initial().adapter).nll.size(), 3u);
  given.probe = 0;
  const Mirror none(given);
  const Probe probe = none.probe(none.initial().adapter);
  EXPECT_TRUE(probe.nll.empty() && probe.activation_rms.empty());
  EXPECT_EQ(probe.ba_norm.size(), none.modules().size());
}

TEST_F(MirrorRun, MeasuresTensorsAndTheirChange) {
  const Mirror mirror = make();
  Tensors before = mirror.initial().adapter, after = before;
  after[1][0] += 3, after[1][1] -= 4;
  const auto norms = mirror.update_norms(after, before);
  EXPECT_EQ(norms[0], 0);
  EXPECT_EQ(norms[1], 5);
  EXPECT_EQ(mirror.tensor_norms(after)[1], 5) << "B was zero";
}

TEST_F(MirrorRun, StepsAsAdamWDoesByHand) {
  const Mirror mirror =
      make({{"optim.weight_decay", "0.1"}, {"optim.clip", "0.5"}, {"optim.schedule", "\"linear\""}});
  AdapterState state = mirror.initial();
  state.adapter[0][0] = 2;
  BatchGradient batch{10, 5, state.m, {}};                 // zeros
  batch.gradient[0][0] = 15, batch.gradient[1][0] = 20;  // mean 3 and 4: norm 5
  const UpdateResult first = mirror.step(state, batch, 1);
  EXPECT_EQ(first.loss, 2);
  EXPECT_EQ(first.norm, 5);
  EXPECT_DOUBLE_EQ(first.clip, 0.5 / (5 + 1e-6));
  EXPECT_EQ(first.lr, 0.01);
  const double g = 3 * first.clip;
  EXPECT_DOUBLE_EQ(state.m[0][0], (1 - 0.9) * g);
  EXPECT_DOUBLE_EQ(state.v[0][0], (1 - 0.999) * g * g);
  EXPECT_DOUBLE_EQ(state.adapter[0][0], 2 * (1 - 0.001) - 0.01 * g / (g + 1e-8));
  EXPECT_EQ(state.steps, 1);

  AdapterState before = state;
  const UpdateResult none = mirror.step(state, {0, 0, state.m, {}}, 2);
  EXPECT_TRUE(std::isnan(none.loss));
  EXPECT_EQ(none.norm, 0);
  EXPECT_EQ(none.clip, 1);
  EXPECT_DOUBLE_EQ(none.lr, 0.01 * 4 / 5);
  EXPECT_EQ(state.adapter, before.adapter);
  EXPECT_EQ(state.steps, 1);

  batch.nll_sum = std::nan("");
  EXPECT_THROW(mirror.step(state, batch, 3), Error);
  EXPECT_EQ(state.adapter, before.adapter);
}

TEST_F(MirrorRun, FollowsTheScheduleOfTheSpecification) {
  const Mirror cosine = make({{"optim.warmup", "2"}, {"optim.lr_min", "0.001"}});
  EXPECT_DOUBLE_EQ(cosine.lr(1), 0.005);
  EXPECT_DOUBLE_EQ(cosine.lr(2), 0.01);
  EXPECT_DOUBLE_EQ(cosine.lr(4), 0.001 + 0.009 * 0.5);
  EXPECT_DOUBLE_EQ(cosine.lr(6), 0.001);
  const Mirror constant = make({{"optim.warmup", "0"}, {"optim.schedule", "\"constant\""}});
  EXPECT_EQ(constant.lr(1), 0.01);
  EXPECT_EQ(constant.lr(6), 0.01);
}

TEST_F(MirrorRun, LowersTheLossItTrainsOn) {
  const Mirror mirror = make({{"train.updates", "12"}, {"optim.lr", "0.05"}}, "llama");
  AdapterState state = mirror.initial();
  double first = 0, last = 0;
  for (std::int64_t t = 1; t <= mirror.updates(); ++t) {
    last = mirror.step(state, mirror.gradient(state.adapter, mirror.batch(t), t), t).loss;
    if (t == 1) first = last;
  }
  EXPECT_LT(last, first - 0.5);
}

TEST_F(MirrorRun, PerturbedGradientsStayWithinReachOfTheUnit) {
  const Mirror mirror = make();
  const Tensors adapter = random_adapter(mirror);
  const auto exact = mirror.gradient(adapter, mirror.batch(1), 1);
  const auto once = mirror.gradient(adapter, mirror.batch(1), 1, Rounding{0x1p-24, 1});
  const auto again = mirror.gradient(adapter, mirror.batch(1), 1, Rounding{0x1p-24, 1});
  const auto other = mirror.gradient(adapter, mirror.batch(1), 1, Rounding{0x1p-24, 2});
  EXPECT_EQ(once.gradient, again.gradient);
  EXPECT_NE(once.gradient, other.gradient);
  for (std::size_t p = 0; p < exact.gradient.size(); ++p) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < exact.gradient[p].size(); ++i) {
      difference += std::pow(once.gradient[p][i] - exact.gradient[p][i], 2);
      size += std::pow(exact.gradient[p][i], 2);
    }
    // Around a hundred operations lie between loss and gradient.
    EXPECT_GT(std::sqrt(difference / size), 0x1p-26);
    EXPECT_LT(std::sqrt(difference / size), 100 * 0x1p-24);
  }
}

TEST_F(MirrorRun, DropsOtherElementsInOtherUpdatesAndNoneInEvaluation) {
  const Mirror with = make({{"lora.dropout", "0.5"}}), without = make();
  const Tensors adapter = random_adapter(with);
  const std::vector<std::int64_t> ids = {0, 1};
  const auto first = with.gradient(adapter, ids, 1);
  EXPECT_EQ(first.nll_sum, with.gradient(adapter, ids, 1).nll_sum);
  EXPECT_NE(first.nll_sum, with.gradient(adapter, ids, 2).nll_sum);
  EXPECT_NE(first.nll_sum, without.gradient(adapter, ids, 1).nll_sum);
  EXPECT_EQ(with.evaluate(&adapter).nll_sum, without.evaluate(&adapter).nll_sum);
}

TEST_F(MirrorRun, StartsFromAPeftAdapter) {
  Inputs given = inputs();
  given.spec_text = tiny_spec(given);
  const Mirror plain(given);
  const Tensors adapter = random_adapter(plain);
  std::map<std::string, TinyTensor> tensors;
  for (std::size_t i = 0; i < adapter.size(); ++i) {
    const AdapterTensor& t = plain.adapter_tensors()[i];
    tensors["base_model.model." + t.name] = {{t.rows, t.columns}, {adapter[i].begin(), adapter[i].end()}};
  }
  given.lora_init = folder / "init";
  std::filesystem::create_directories(*given.lora_init);
  const auto write = [&](int rank) {
    const nlohmann::json config = {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", 3}, {"bias", "none"}};
    support::write_text(*given.lora_init / "adapter_config.json", config.dump());
    given.spec_text = tiny_spec(given);
  };
  write_safetensors(*given.lora_init / "adapter_model.safetensors", tensors);
  write(2);
  EXPECT_EQ(Mirror(given).initial().adapter, adapter);
  write(4);
  const Mirror other_rank(given);
  EXPECT_THROW(other_rank.initial(), Error);
  tensors["base_model.model.other"] = {{1}, {1}};
  write_safetensors(*given.lora_init / "adapter_model.safetensors", tensors);
  write(2);
  const Mirror more(given);
  EXPECT_THROW(more.initial(), Error);
}

TEST_F(MirrorRun, RefusesInputsThatAreNotTheSpecs) {
  Inputs given = inputs();
  given.spec_text = tiny_spec(given);
  Inputs other = given;
  other.train = *given.held_out;
  expect_error(other, ErrorKind::kInput, "data.train");
  other = given;
  other.held_out.reset();
  expect_error(other, ErrorKind::kUsage, "data.held_out");
  other = given;
  other.model = make_tiny(folder, "llama");
  expect_error(other, ErrorKind::kInput, "model.path");
  other = given;
  other.spec_text = tiny_spec(given, {{"data.max_tokens", "5000"}});
  expect_error(other, ErrorKind::kUsage, "max_position_embeddings");
  other = given;
  other.train = make_rows(folder, "nothing", {4, 5}, {0, 0});
  other.spec_text = tiny_spec(other);
  expect_error(other, ErrorKind::kInput, "no token is scored");
  other = given;
  other.train = make_rows(folder, "beyond", {4}, {2}, 1000);
  other.spec_text = tiny_spec(other);
  expect_error(other, ErrorKind::kInput, "beyond");
}

TEST_F(MirrorRun, RefusesSpecsThatAreNotCanonical) {
  const Inputs given = inputs();
  const std::string text = tiny_spec(given);
  for (const auto& [spec, part] :
       {std::pair(text + "novelty = 1\n", "unknown"), std::pair(text + "lora.rank = 3\n", "twice"),
        std::pair(text.substr(text.find('\n') + 1), "missing"),
        std::pair(tiny_spec(given, {{"lora.rank", "2.5"}}), "no number"),
        std::pair(tiny_spec(given, {{"lora.targets", "\"q,x\""}}), "x is unknown"),
        std::pair(tiny_spec(given, {{"optim.warmup", "6"}}), "not below"),
        std::pair(tiny_spec(given, {{"optim.schedule", "\"square\""}}), "not known")}) {
    Inputs other = given;
    other.spec_text = spec;
    expect_error(other, ErrorKind::kUsage, part);
  }
}

TEST_F(MirrorRun, ChecksumsAndDigestsRoundToFloat) {
  const Mirror mirror = make();
  Tensors adapter = mirror.initial().adapter;
  std::uint64_t expected = 0, i = 0;
  for (const auto& tensor : adapter)
    for (const double value : tensor)
      expected += (splitmix64(i++) | 1) * std::bit_cast<std::uint32_t>(static_cast<float>(value));
  EXPECT_EQ(mirror.adapter_checksum(adapter), expected);
  const std::string digest = mirror.adapter_digest(adapter);
  adapter[0][0] *= 1 + 1e-12;
  EXPECT_EQ(mirror.adapter_digest(adapter), digest);
  adapter[0][0] *= 1 + 1e-6;
  EXPECT_NE(mirror.adapter_digest(adapter), digest);
}

TEST_F(MirrorRun, CountsItsOperations) {
  const Mirror mirror = make();
  // 2 layers of q 24x12, k and v 12x12, o 12x24, gate, up 20x12, down 12x20; rank 2 at each; head 40x12.
  const double weights = 2 * (288 + 144 + 144 + 288 + 3 * 240),
               adapters = 2 * 2 * (36 + 24 + 24 + 36 + 3 * 32);
  const double expected = 2 * (3 * 9 * weights + 4 * 9 * adapters + 4 * 81 * 2.0 * 2 * 24 + 3 * 6 * 480);
  EXPECT_EQ(mirror.gradient_flops(9, 6), expected);
  EXPECT_GT(mirror.update_flops(1), 0);
  EXPECT_GT(mirror.evaluation_flops(), 0);
  EXPECT_GT(mirror.flops_per_second(), 1e6);
}

}  // namespace
}  // namespace tandem::mirror
