// Token by token with kept keys and values, against the training forward pass over all tokens at every step.
#include "src/model/decoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/error.hpp"
#include "src/model/adapter_folder.hpp"
#include "src/model/loaded_model.hpp"
#include "src/model/transformer.hpp"
#include "tests/support/tiny_adapter.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

struct Models {
  explicit Models(const std::string& type, int threads = 2)
      : dir(support::make_tiny_model(folder, type)), model(load_model(dir)), ctx(threads) {
    support::make_tiny_adapter(folder / "adapter", model.config, 4, 8.0);
    adapter.emplace(load_adapter(folder / "adapter", model.config));
  }
  // Logits [T,V] of all positions, computed at once.
  std::vector<float> all_logits(std::span<const float> values, std::span<const std::int32_t> ids) const {
    const auto t = static_cast<std::int64_t>(ids.size());
    Transformer transformer(ctx, model.config, model.weights.views(), adapter->layout, {0, 0, t, t, t});
    transformer.allocate();
    MicroBatch batch;
    batch.all_positions(ids);
    std::vector<float> logits(static_cast<std::size_t>(t * model.config.vocab_size), std::nanf(""));
    transformer.logits(values, batch, Matrix(logits.data(), t, model.config.vocab_size));
    return logits;
  }
  Decoder decoder(std::span<const float> values, std::int64_t capacity) const {
    return {ctx, model.config, model.weights, adapter->layout, values, capacity};
  }

  support::TempFolder folder;
  std::filesystem::path dir;
  LoadedModel model;
  CpuContext ctx;
  std::optional<LoadedAdapter> adapter;
};

std::vector<std::int32_t> tokens(std::int64_t n) {
  const SampleSet samples = support::make_samples({n}, {0});
  return {samples.ids(0).begin(), samples.ids(0).end()};
}

// ||a - b|| / ||b|| of two rows of logits.
double relative(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2.0);
    norm += std::pow(static_cast<double>(b[i]), 2.0);
  }
  return std::sqrt(difference / norm);
}

// Sums of a few hundred products in another order, through three layers: 1e-5 is 170 units of float32's last
// place.
constexpr double kTolerance = 1e-5;

TEST(Decoder, EveryStepGivesTheFullForwardsLogits) {
  for (const char* type : {"qwen3", "llama"}) {
    const Models models(type);
    const auto v = static_cast<std::size_t>(models.model.config.vocab_size);
    const std::vector<std::int32_t> ids = tokens(40);
    for (const std::span<const float> values :
         {std::span<const float>(), std::span<const float>(models.adapter->values)}) {
      const std::vector<float> full = models.all_logits(values, ids);
      Decoder decoder = models.decoder(values, 40);
      for (std::size_t p = 6; p < ids.size(); ++p) {
        const auto logits = p == 6 ? decoder.prefill(std::span(ids).first(7)) : decoder.step(ids[p]);
        ASSERT_EQ(logits.size(), v);
        EXPECT_LE(relative(logits, std::span(full).subspan(p * v, v)), kTolerance)
            << type << " position " << p;
      }
      EXPECT_EQ(decoder.length(), 40);
    }
    // The adapter is not left out.
    EXPECT_GT(relative(models.all_logits({}, ids), models.all_logits(models.adapter->values, ids)), 0.01);
  }
}

// More than one chunk of the decoder, more than one chunk of keys, blocks of queries that are not full.
TEST(Decoder, LongPromptsGoInChunks) {
  const Models models("qwen3");
  const auto v = static_cast<std::size_t>(models.model.config.vocab_size);
  const std::vector<std::int32_t> ids = tokens(700);
  const std::vector<float> full = models.all_logits(models.adapter->values, ids);
  Decoder decoder = models.decoder(models.adapter->values, 700);
  for (const std::size_t n : {1u, 256u, 257u, 512u, 513u, 699u}) {
    EXPECT_LE(relative(decoder.prefill(std::span(ids).first(n)), std::span(full).subspan((n - 1) * v, v)),
              kTolerance)
        << n;
    EXPECT_LE(relative(decoder.step(ids[n]), std::span(full).subspan(n * v, v)), kTolerance) << n;
  }
}

TEST(Decoder, ThreadsAndWhatCameBeforeChangeNoBit) {
  const Models one("qwen3", 1), four("qwen3", 4);
  const std::vector<std::int32_t> ids = tokens(30), other = tokens(50);
  Decoder a = one.decoder(one.adapter->values, 30), b = four.decoder(four.adapter->values, 60);
  b.prefill(other);
  for (std::size_t p = 9; p < ids.size(); ++p) {
    const auto x = p == 9 ? a.prefill(std::span(ids).first(10)) : a.step(ids[p]);
    const auto y = p == 9 ? b.prefill(std::span(ids).first(10)) : b.step(ids[p]);
    ASSERT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << p;
  }
}

TEST(Decoder, RefusesMoreThanItHolds) {
  const Models models("llama");
  Decoder decoder = models.decoder({}, 3);
  decoder.prefill(tokens(3));
  EXPECT_THROW(decoder.step(1), Error);
  EXPECT_THROW(decoder.prefill({}), Error);
  const std::vector<std::int32_t> outside = {static_cast<std::int32_t>(models.model.config.vocab_size)};
  EXPECT_THROW(decoder.prefill(outside), Error);
}

TEST(Greedy, TakesTheLowestOfEqualsAndNoNan) {
  EXPECT_EQ(greedy_token(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(greedy_token(std::vector<float>{-5}), 0);
  EXPECT_THROW(greedy_token(std::vector<float>{1, std::nanf("")}), Error);
  EXPECT_THROW(greedy_token(std::vector<float>{std::numeric_limits<float>::infinity()}), Error);
}

// The rows of logits are what the loss is computed from.
TEST(Logits, GiveTheLoss) {
  const Models models("qwen3");
  const SampleSet samples = support::make_samples({37}, {36});
  Transformer transformer(models.ctx, models.model.config, models.model.weights.views(), models.adapter->layout,
                          {0, 0, 37, 37, 37});
  transformer.allocate();
  MicroBatch batch;
  batch.pack(samples, std::vector<std::int64_t>{0});
  std::vector<float> nll(36), logits(36 * static_cast<std::size_t>(models.model.config.vocab_size));
  transformer.evaluate(models.adapter->values, batch, nll);
  transformer.logits(models.adapter->values, batch,
                     Matrix(logits.data(), 36, models.model.config.vocab_size));
  for (std::size_t n = 0; n < 36; ++n) {
    const auto row = std::span(logits).subspan(n * static_cast<std::size_t>(models.model.config.vocab_size),
                                               static_cast<std::size_t>(models.model.config.vocab_size));
    double sum = 0.0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    const double want = std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(batch.target[n])]);
    // The kernel's exp is float32: a few units in the last place of its sum.
    EXPECT_NEAR(nll[n], want, 2e-6 * std::max(1.0, want));
  }
}

}  // namespace
}  // namespace tandem
