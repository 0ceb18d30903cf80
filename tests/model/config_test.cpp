#include "src/model/config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "src/base/error.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

json qwen3() {
  return {{"model_type", "qwen3"},
          {"vocab_size", 300},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"rope_theta", 1e6},
          {"tie_word_embeddings", true},
          {"max_position_embeddings", 4096}};
}

ModelConfig read(const json& object) {
  const support::TempFolder folder;
  std::ofstream(folder.path() / "config.json") << object;
  return read_model_config(folder.path());
}

void expect_refused(const json& object, const std::string& part) {
  try {
    read(object);
    ADD_FAILURE() << "accepted: " << object;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ModelConfig, ReadsThePublishedQwen3AndSmolLM2) {
  const auto qwen = support::data_path("qwen3"), smol = support::data_path("smollm2");
  if (!qwen || !smol) GTEST_SKIP() << support::kNoData;
  const ModelConfig a = read_model_config(*qwen), b = read_model_config(*smol);
  EXPECT_EQ(a.heads.head_dim, 128);
  EXPECT_EQ(a.heads.q_cols(), 2048);
  EXPECT_EQ(a.rope_theta, 1e6);
  EXPECT_TRUE(a.qk_norm && a.tied_head);
  EXPECT_EQ(b.heads.head_dim, 64);
  EXPECT_EQ(b.heads.n_kv_heads, 3);
  EXPECT_EQ(b.rms_eps, 1e-5);
  EXPECT_FALSE(b.qk_norm);
}

TEST(ModelConfig, FillsInWhatIsMissing) {
  json object = qwen3();
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_theta", "tie_word_embeddings"})
    object.erase(key);
  ModelConfig config = read(object);
  EXPECT_EQ(config.heads.head_dim, 128);
  EXPECT_EQ(config.heads.n_kv_heads, 4);
  EXPECT_EQ(config.rope_theta, 1e4);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_FALSE(config.tied_head);
  object["model_type"] = "llama";
  object["head_dim"] = nullptr;
  EXPECT_EQ(read(object).heads.head_dim, 16);
}

TEST(ModelConfig, TakesThetaFromRopeParameters) {
  json object = qwen3();
  object.erase("rope_theta");
  object["rope_parameters"] = {{"rope_theta", 5e5}, {"rope_type", "default"}};
  EXPECT_EQ(read(object).rope_theta, 5e5);
  object["rope_theta"] = 1e4;
  expect_refused(object, "differs from the one in rope_parameters");
}

// Values of the published Llama 3.2 configuration; expected frequencies by the formula of Meta's release, in
// Python: wavelength 2 pi/f; above 8192/1 divided by 32, below 8192/4 kept, else s*f + (1-s)*f/32, s =
// (8192/w - 1)/3.
TEST(ModelConfig, ScalesTheFrequenciesOfLlama3UnderOldAndNewKeys) {
  json object = qwen3();
  object["model_type"] = "llama";
  object["head_dim"] = 64;
  object["rope_theta"] = 5e5;
  const json scaling = {{"factor", 32.0},
                        {"high_freq_factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}};
  object["rope_scaling"] = scaling;
  const auto frequencies = rope_frequencies(read(object));
  ASSERT_EQ(frequencies.size(), 32u);
  for (std::size_t i = 0; i < 32; ++i) {
    const double f = std::pow(5e5, -static_cast<double>(i) / 32.0), w = 2.0 * 3.14159265358979323846 / f;
    const double s = (8192.0 / w - 1.0) / 3.0;
    const double want = w > 8192.0 ? f / 32.0 : w < 2048.0 ? f : s * f + (1.0 - s) * f / 32.0;
    EXPECT_NEAR(frequencies[i], want, 1e-15 * want * 8) << i;
  }
  EXPECT_NE(frequencies[17], std::pow(5e5, -17.0 / 32.0));
  json renewed = object;
  renewed.erase("rope_scaling");
  renewed.erase("rope_theta");
  renewed["rope_parameters"] = scaling;
  renewed["rope_parameters"]["rope_theta"] = 5e5;
  EXPECT_EQ(rope_frequencies(read(renewed)), frequencies);
}

TEST(ModelConfig, RefusesArithmeticThatItDoesNotDo) {
  const auto with = [](const char* key, const json& value) {
    json object = qwen3();
    object[key] = value;
    return object;
  };
  expect_refused(with("model_type", "mistral"), "model_type");
  expect_refused(with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}), "low_freq_factor");
  expect_refused(with("rope_scaling", {{"type", "linear"}, {"factor", 8.0}}), "rope_scaling");
  expect_refused(with("rope_parameters", {{"rope_type", "yarn"}}), "rope_parameters");
  expect_refused(with("rope_parameters", {{"rope_theta", 1e6}, {"factor", 8.0}}), "factor");
  expect_refused(with("attention_bias", true), "attention_bias");
  expect_refused(with("mlp_bias", true), "mlp_bias");
  expect_refused(with("hidden_act", "gelu"), "hidden_act");
  expect_refused(with("use_sliding_window", true), "use_sliding_window");
  expect_refused(with("layer_types", {"full_attention", "sliding_attention"}), "layer_types");
  expect_refused(with("quantization_config", {{"bits", 4}}), "quantization_config");
  expect_refused(with("partial_rotary_factor", 0.5), "partial_rotary_factor");
  json windowed = qwen3();
  windowed["model_type"] = "llama";
  windowed["sliding_window"] = 4096;
  expect_refused(windowed, "sliding_window");
}

TEST(ModelConfig, RefusesSizesThatDoNotFit) {
  const auto with = [](const char* key, const json& value) {
    json object = qwen3();
    object[key] = value;
    return object;
  };
  expect_refused(with("num_key_value_heads", 3), "must divide");
  expect_refused(with("head_dim", 31), "even");
  expect_refused(with("head_dim", 512), "at most");
  expect_refused(with("hidden_size", 0), "hidden_size");
  expect_refused(with("hidden_size", "64"), "hidden_size");
  expect_refused(with("vocab_size", 1e18), "vocab_size");
  expect_refused(with("rms_norm_eps", -1.0), "rms_norm_eps");
  expect_refused(json::array(), "one JSON object");
  expect_refused(json(nullptr), "one JSON object");
}

}  // namespace
}  // namespace tandem
