#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "io/safetensors.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/cli/init_model_command.hpp"
#include "src/cli/model_shape.hpp"
#include "src/model/config.hpp"
#include "tests/support/data.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::read_json;
using support::TempFolder;

std::string make(const InitModelOptions& options) {
  std::ostringstream out;
  EXPECT_EQ(init_model_command(options, out), 0);
  return out.str();
}

std::string refusal(const InitModelOptions& options, ErrorKind kind) {
  std::ostringstream out;
  try {
    init_model_command(options, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(InitModel, TinyIsAWholeFolderThatTheModelCodeReads) {
  TempFolder folder;
  EXPECT_SAYS(make({.seed = 7, .out = folder / "new/tiny"}), "random weights of seed 7");
  const auto model = folder / "new/tiny";
  for (const auto* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(fs::exists(model / name)) << name;
  EXPECT_FALSE(support::has_temporaries(folder / "new"));
  const ModelConfig config = read_model_config(model);
  EXPECT_EQ(config.model_type, "qwen3");
  EXPECT_TRUE(config.qk_norm && config.tied_head);
  EXPECT_GE(config.vocab_size, Tokenizer::load(model).size());
  EXPECT_EQ(config.vocab_size % 64, 0);
  EXPECT_EQ(read_json(model / "config.json")["eos_token_id"],
            Tokenizer::load(model).added_token("<|im_end|>"));
  const SafetensorsFile weights(model / "model.safetensors");
  for (const auto& tensor : weights.tensors()) EXPECT_EQ(tensor.dtype, DType::kF32) << tensor.name;
  EXPECT_EQ(weights.find("lm_head.weight"), nullptr);
}

TEST(InitModel, TheSameSeedGivesTheSameBytesAndAnotherSeedOthers) {
  TempFolder folder;
  make({.seed = 1, .out = folder / "a"});
  make({.seed = 1, .out = folder / "b"});
  make({.seed = 2, .out = folder / "c"});
  const auto digest = [&](const std::string& name) {
    return sha256_file(folder / name / "model.safetensors");
  };
  EXPECT_EQ(digest("a"), digest("b"));
  EXPECT_NE(digest("a"), digest("c"));
}

TEST(InitModel, WeightsAreSpreadAsTheConfigSaysAndNormsAreOne) {
  TempFolder folder;
  make({.preset = "tiny", .out = folder / "m", .hidden = 256, .vocab = 1024});
  const double spread = read_json(folder / "m/config.json")["initializer_range"];
  EXPECT_EQ(spread, 1.0 / 16);
  const SafetensorsFile weights(folder / "m/model.safetensors");
  std::vector<float> values(1024 * 256);
  widen_to_f32(*weights.find("model.embed_tokens.weight"), values);
  double sum = 0, squares = 0, fourth = 0, largest = 0;
  for (const double v : values) {
    const double z = v / spread;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    largest = std::max(largest, std::abs(z));
  }
  const auto n = static_cast<double>(values.size());
  // Five standard errors of the mean, the variance and the fourth moment (3 - 1.2/12 for twelve uniforms).
  EXPECT_LE(std::abs(sum / n), 5 / std::sqrt(n));
  EXPECT_LE(std::abs(squares / n - 1), 5 * std::sqrt(2 / n));
  EXPECT_LE(std::abs(fourth / n - 2.9), 5 * std::sqrt(96 / n));
  EXPECT_LE(largest, 6.0);
  std::vector<float> norm(256);
  widen_to_f32(*weights.find("model.layers.0.input_layernorm.weight"), norm);
  EXPECT_EQ(norm, std::vector<float>(256, 1.0f));
}

TEST(InitModel, MakesTinyLlamasAndUntiedHeadsOfAnySize) {
  TempFolder folder;
  make({.out = folder / "m",
        .dtype = "BF16",
        .type = "llama",
        .hidden = 48,
        .layers = 3,
        .heads = 3,
        .kv_heads = 1,
        .head_dim = 16,
        .intermediate = 100,
        .vocab = 500,
        .tied = false});
  const ModelConfig config = read_model_config(folder / "m");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_FALSE(config.tied_head || config.qk_norm);
  EXPECT_EQ(config.n_layers, 3);
  const SafetensorsFile weights(folder / "m/model.safetensors");
  EXPECT_EQ(weights.find("lm_head.weight")->shape, (std::vector<std::int64_t>{500, 48}));
  EXPECT_EQ(weights.find("lm_head.weight")->dtype, DType::kBF16);
  EXPECT_EQ(weights.find("model.layers.2.self_attn.k_proj.weight")->shape,
            (std::vector<std::int64_t>{16, 48}));
  EXPECT_EQ(weights.find("model.layers.0.self_attn.q_norm.weight"), nullptr);
}

TEST(InitModel, PresetsHaveThePublishedValues) {
  for (const auto& [preset, file] : std::map<std::string, std::string>{
           {"smollm2-135m", "smollm2/config.json"}, {"qwen3-0.6b", "qwen3/config.json"}}) {
    const auto path = support::data_path(file);
    if (!path) GTEST_SKIP() << support::kNoData;
    const auto published = read_json(*path);
    const auto ours = nlohmann::json::parse(config_text(preset_shape(preset), 1, 2));
    for (const auto& [key, value] : ours.items()) {
      if (key == "bos_token_id" || key == "eos_token_id" || !published.contains(key)) continue;
      EXPECT_EQ(value, published[key]) << preset << " " << key;
    }
    for (const auto* key : {"hidden_size", "vocab_size", "rope_theta", "model_type", "architectures"})
      EXPECT_TRUE(ours.contains(key) && published.contains(key)) << key;
  }
}

TEST(InitModel, PresetsHaveThePublishedNumberOfParameters) {
  const auto count = [](const std::string& preset) {
    std::int64_t total = 0;
    for (const auto& spec : tensor_specs(preset_shape(preset))) {
      std::int64_t product = 1;
      for (const auto dim : spec.shape) product *= dim;
      total += product;
    }
    return total;
  };
  EXPECT_EQ(count("smollm2-135m"), 134'515'008);
  EXPECT_EQ(count("qwen3-0.6b"), 596'049'920);
}

TEST(InitModel, TakesTheVocabularyOfAGivenTokenizer) {
  const auto tokenizer = support::data_path("smollm2/tokenizer.json");
  if (!tokenizer) GTEST_SKIP() << support::kNoData;
  TempFolder folder;
  make({.tokenizer = tokenizer->parent_path(), .out = folder / "m", .hidden = 8, .layers = 1});
  EXPECT_EQ(read_model_config(folder / "m").vocab_size, 49152);
  EXPECT_EQ(support::read_text(folder / "m/tokenizer.json"), support::read_text(*tokenizer));
  EXPECT_SAYS(refusal({.tokenizer = tokenizer->parent_path(), .out = folder / "n", .vocab = 49151},
                      ErrorKind::kUsage),
              "give --vocab 49152 or more");
  EXPECT_FALSE(fs::exists(folder / "n"));
}

TEST(InitModel, RefusesWhatMakesNoModel) {
  TempFolder folder;
  const auto out = folder / "m";
  EXPECT_SAYS(refusal({.preset = "huge", .out = out}, ErrorKind::kUsage), "tiny, smollm2-135m, qwen3-0.6b");
  EXPECT_SAYS(refusal({.out = out, .heads = 3}, ErrorKind::kUsage), "no multiple of --kv-heads");
  EXPECT_SAYS(refusal({.out = out, .head_dim = 7}, ErrorKind::kUsage), "is odd");
  EXPECT_SAYS(refusal({.out = out, .head_dim = 258}, ErrorKind::kUsage), "above 256");
  EXPECT_SAYS(refusal({.out = out, .layers = 4097}, ErrorKind::kUsage), "--layers 4097 is not in 1 to 4096");
  EXPECT_SAYS(refusal({.out = out, .hidden = 1 << 22, .layers = 4096}, ErrorKind::kInput), "GiB left");
  EXPECT_SAYS(refusal({.out = out, .hidden = 0}, ErrorKind::kUsage), "--hidden 0");
  EXPECT_SAYS(refusal({.out = out, .dtype = "F16"}, ErrorKind::kUsage), "neither F32 nor BF16");
  EXPECT_SAYS(refusal({.out = out, .type = "gpt"}, ErrorKind::kUsage), "neither qwen3 nor llama");
  EXPECT_SAYS(refusal({.tokenizer = folder.path(), .out = out}, ErrorKind::kInput), "no tokenizer.json");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  fs::create_directory(folder / "full");
  support::write_text(folder / "full/x", "");
  EXPECT_SAYS(refusal({.out = folder / "full"}, ErrorKind::kInput), "not an empty folder");
  fs::create_directory(folder / "empty");
  make({.out = folder / "empty"});
  EXPECT_TRUE(fs::exists(folder / "empty/config.json"));
}

}  // namespace
}  // namespace tandem
