// Log-probabilities of small seeded models and adapters against values that Hugging Face's transformers and
// PEFT gave.
//
// published_logits.json and published_adapters.json are written by tests/real/transformers_logits.py and
// peft_roundtrip.py; here the same tensors are drawn again (tests/real/seeded_models.py has the recipe),
// without either package.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/safetensors.hpp"
#include "src/base/random.hpp"
#include "src/model/lora.hpp"
#include "src/model/transformer.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

// |ours - theirs| of one log-probability: 1e-5 of the logits' rms, which is 1.2 in all models. Float32 leaves
// about 1e-6; theta off by 1e-4, a factor of 8.01 for 8 or a doubled epsilon leaves more than this.
constexpr double kTolerance = 1.2e-5;

json published(const char* file) {
  return support::read_json(std::string(TANDEM_SOURCE_DIR "/tests/model/") + file);
}

std::vector<float> draw_tensor(std::uint64_t seed, const std::string& name,
                               const std::vector<std::int64_t>& shape) {
  const RandomStream stream(seed, name);
  const std::int64_t n = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double r = 2.0 * stream.unit(i) - 1.0;
    if (name.ends_with(".bias"))
      values[i] = static_cast<float>(r);
    else if (shape.size() == 1)
      values[i] = static_cast<float>(1.0 + r / 2.0);
    else
      values[i] = static_cast<float>(r * std::sqrt(4.0 / static_cast<double>(shape[1])));
  }
  return values;
}

class SeededModel {
 public:
  explicit SeededModel(const std::string& name)
      : file_(published("published_logits.json")), model_(file_["models"].at(name)) {
    support::write_text(folder_ / "config.json", model_["config"].dump());
    std::vector<TensorSpec> specs;
    for (const auto& [tensor, shape] : model_["tensors"].items())
      specs.push_back({tensor, DType::kF32, shape});
    SafetensorsWriter writer(folder_ / "model.safetensors", specs);
    for (const TensorSpec& spec : specs)
      writer.write(std::span<const float>(draw_tensor(seed(), spec.name, spec.shape)));
    writer.publish();
    config_ = read_model_config(folder_.path());
  }

  std::uint64_t seed() const { return file_["seed"]; }
  const ModelConfig& config() const { return config_; }
  const json& values() const { return model_["values"]; }

  void expect(const json& values, const LoraLayout& layout, std::span<const float> adapter) const {
    MicroBatch batch = tokens();
    std::vector<double> wanted;
    for (const json& value : values)
      for (const auto& [id, logit] : value["logits"].items()) {
        batch.scored_row.push_back(value["position"]);
        batch.target.push_back(std::stoi(id));
        wanted.push_back(logit.get<double>() - value["log_sum_exp"].get<double>());
      }
    ASSERT_EQ(wanted.size(), 20u);

    Arena memory(Weights::bytes(config_), "weights");
    Weights weights(config_, memory.block());
    weights.load(ModelTensors(folder_.path()));
    const CpuContext ctx(1);
    Transformer transformer(ctx, config_, weights.views(), layout,
                            {0, 0, batch.n_tokens(), batch.n_scored(), batch.n_tokens()});
    transformer.allocate();
    std::vector<float> nll(wanted.size());
    transformer.evaluate(adapter, batch, nll);
    for (std::size_t i = 0; i < nll.size(); ++i)
      EXPECT_NEAR(-nll[i], wanted[i], kTolerance)
          << "position " << batch.scored_row[i] << ", token " << batch.target[i];
  }

 private:
  MicroBatch tokens() const {
    const auto n = file_["n_tokens"].get<std::int32_t>();
    const RandomStream ids(seed(), "ids");
    MicroBatch batch;
    batch.sample_begin = {0, n};
    for (std::int32_t p = 0; p < n; ++p) {
      const std::uint64_t id =
          ids.draw(static_cast<std::uint64_t>(p)) % static_cast<std::uint64_t>(config_.vocab_size);
      batch.ids.push_back(static_cast<std::int32_t>(id));
      batch.position.push_back(p);
      batch.sample_key.push_back(0);
    }
    return batch;
  }

  const json file_;
  const json& model_;
  support::TempFolder folder_;
  ModelConfig config_;
};

class PublishedLogits : public testing::TestWithParam<const char*> {};
class PublishedAdapter : public testing::TestWithParam<const char*> {};

TEST_P(PublishedLogits, AreOurs) {
  const SeededModel model(GetParam());
  model.expect(model.values(), LoraLayout(model.config(), 1, 1.0, {"q"}), {});
}

TEST_P(PublishedAdapter, HasOurKeysAndGivesOurLogits) {
  const SeededModel model(GetParam());
  const json adapter = published("published_adapters.json")["models"].at(GetParam());
  AdapterConfig settings;
  settings.rank = adapter["rank"], settings.alpha = adapter["alpha"], settings.rslora = adapter["rslora"];
  const LoraLayout layout(model.config(), settings.rank, settings.scale(), adapter["targets"]);

  std::map<std::string, std::vector<std::int64_t>> keys;
  std::vector<float> values(static_cast<std::size_t>(layout.size()));
  for (const LoraTensor& tensor : layout.tensors()) {
    keys["base_model.model." + tensor.name] = {tensor.rows, tensor.cols};
    std::ranges::copy(draw_tensor(model.seed(), tensor.name, {tensor.rows, tensor.cols}),
                      values.begin() + tensor.offset);
  }
  EXPECT_EQ(keys, (adapter["keys"].get<std::map<std::string, std::vector<std::int64_t>>>()));
  model.expect(adapter["values"], layout, values);
}

std::string with_underscores(const testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Transformers, PublishedLogits,
                         testing::Values("qwen3-tied", "qwen3-untied", "llama3-tied", "llama3-untied",
                                         "qwen2-tied", "qwen2-untied"),
                         with_underscores);
INSTANTIATE_TEST_SUITE_P(Peft, PublishedAdapter,
                         testing::Values("qwen3-tied", "llama3-untied", "qwen2-untied"), with_underscores);

}  // namespace
}  // namespace tandem
