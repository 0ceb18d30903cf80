// Log-probabilities of small seeded models against values that Hugging Face's transformers gave for them.
//
// published_logits.json is written by tests/real/transformers_logits.py, which compares every logit; here the same models
// are drawn again (tests/real/seeded_models.py has the recipe) and a few values are held for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/model/lora.hpp"
#include "src/model/transformer.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

// |ours - theirs| of one log-probability: 1e-5 of the logits' rms, which is 1.2 in all six models. Float32 leaves about
// 1e-6; a wrong epsilon, frequency, bias or norm leaves more than 1e-3.
constexpr double kTolerance = 1.2e-5;

std::vector<float> draw_tensor(std::uint64_t seed, const std::string& name, const std::vector<std::int64_t>& shape) {
  const RandomStream stream(seed, name);
  const std::int64_t n = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double r = 2.0 * stream.unit(i) - 1.0;
    const bool bias = name.ends_with(".bias");
    const double value = bias ? r : shape.size() == 1 ? 1.0 + r / 2.0 : r * std::sqrt(4.0 / static_cast<double>(shape[1]));
    values[i] = static_cast<float>(value);
  }
  return values;
}

void write_model(const std::filesystem::path& folder, std::uint64_t seed, const json& model) {
  support::write_text(folder / "config.json", model["config"].dump());
  std::vector<TensorSpec> specs;
  for (const auto& [name, shape] : model["tensors"].items()) specs.push_back({name, DType::kF32, shape});
  SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const TensorSpec& spec : specs) writer.write(std::span<const float>(draw_tensor(seed, spec.name, spec.shape)));
  writer.publish();
}

class PublishedLogits : public testing::TestWithParam<const char*> {};

TEST_P(PublishedLogits, AreOurs) {
  const json file = support::read_json(TANDEM_SOURCE_DIR "/tests/model/published_logits.json");
  const json& model = file["models"].at(GetParam());
  const auto seed = file["seed"].get<std::uint64_t>();
  const support::TempFolder folder;
  write_model(folder.path(), seed, model);

  const ModelConfig config = read_model_config(folder.path());
  Arena memory(Weights::bytes(config), "weights");
  Weights weights(config, memory.block());
  weights.load(ModelTensors(folder.path()));

  const auto n_tokens = file["n_tokens"].get<std::int64_t>();
  const RandomStream ids(seed, "ids");
  MicroBatch batch;
  batch.sample_begin = {0, static_cast<std::int32_t>(n_tokens)};
  for (std::int64_t p = 0; p < n_tokens; ++p) {
    batch.ids.push_back(static_cast<std::int32_t>(ids.draw(static_cast<std::uint64_t>(p)) %
                                                  static_cast<std::uint64_t>(config.vocab_size)));
    batch.position.push_back(static_cast<std::int32_t>(p));
    batch.sample_key.push_back(0);
  }
  std::vector<double> published;
  for (const json& value : model["values"])
    for (const auto& [id, logit] : value["logits"].items()) {
      batch.scored_row.push_back(value["position"]);
      batch.target.push_back(std::stoi(id));
      published.push_back(logit.get<double>() - value["log_sum_exp"].get<double>());
    }

  const CpuContext ctx(1);
  const LoraLayout no_adapter(config, 1, 1.0, {"q"});
  Transformer transformer(ctx, config, weights, no_adapter, {0, 0, n_tokens, batch.n_scored(), n_tokens});
  transformer.allocate();
  std::vector<float> nll(published.size());
  transformer.evaluate({}, batch, nll);
  ASSERT_EQ(nll.size(), 20u);
  for (std::size_t i = 0; i < nll.size(); ++i)
    EXPECT_NEAR(-nll[i], published[i], kTolerance) << "position " << batch.scored_row[i] << ", token " << batch.target[i];
}

INSTANTIATE_TEST_SUITE_P(Transformers, PublishedLogits,
                         testing::Values("qwen3-tied", "qwen3-untied", "llama3-tied", "llama3-untied", "qwen2-tied",
                                         "qwen2-untied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
