// How the mirror reads a model's configuration.
#include "src/mirror/config.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/mirror/tiny.hpp"
#include "tests/support/data.hpp"

namespace tandem::mirror {
namespace {

class MirrorConfig : public testing::Test {
 protected:
  Config read(const nlohmann::json& config) {
    support::write_text(folder / "config.json", config.dump());
    return read_config(folder / "config.json");
  }
  void expect_refusal(const nlohmann::json& change, const std::string& part) {
    auto config = tiny_config("llama");
    config.update(change);
    try {
      read(config);
      FAIL() << "not refused: " << change;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  support::TempFolder folder;
};

TEST_F(MirrorConfig, FillsInWhatTheSpecificationSays) {
  const nlohmann::json least = {{"model_type", "llama"},  {"vocab_size", 10},
                                {"hidden_size", 12},      {"intermediate_size", 8},
                                {"num_hidden_layers", 1}, {"num_attention_heads", 3}};
  const Config llama = read(least);
  EXPECT_EQ(llama.head_dim, 4);
  EXPECT_EQ(llama.kv_heads, 3);
  EXPECT_EQ(llama.rope_theta, 1e4);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_FALSE(llama.tied_head);
  auto qwen3 = least;
  qwen3["model_type"] = "qwen3";
  EXPECT_EQ(read(qwen3).head_dim, 128);
}

TEST_F(MirrorConfig, FindsThetaAndScalingUnderEitherName) {
  auto config = tiny_config("llama");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 123.0}, {"rope_type", "default"}};
  EXPECT_EQ(read(config).rope_theta, 123);
  EXPECT_FALSE(read(config).rope_scaling);
  config["rope_parameters"] = {{"rope_theta", 123.0},   {"rope_type", "llama3"},
                               {"factor", 8},           {"low_freq_factor", 1},
                               {"high_freq_factor", 4}, {"original_max_position_embeddings", 64}};
  EXPECT_EQ(read(config).rope_scaling->original_context, 64);
  EXPECT_EQ(read(tiny_config("llama3")).rope_scaling->factor, 8);
}

TEST_F(MirrorConfig, RefusesWhatItDoesNotCompute) {
  expect_refusal({{"model_type", "gpt2"}}, "`gpt2`");
  expect_refusal({{"hidden_act", "gelu"}}, "gelu");
  expect_refusal({{"attention_bias", true}}, "attention_bias");
  expect_refusal({{"mlp_bias", true}}, "mlp_bias");
  expect_refusal({{"sliding_window", 128}}, "sliding");
  expect_refusal({{"use_sliding_window", true}}, "sliding");
  expect_refusal({{"layer_types", {"full_attention", "sliding_attention"}}}, "sliding_attention");
  expect_refusal({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}, "yarn");
  expect_refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}, "linear");
  expect_refusal({{"quantization_config", {{"bits", 4}}}}, "quantised");
  expect_refusal({{"num_key_value_heads", 3}}, "multiple");
  expect_refusal({{"head_dim", 5}}, "odd");
  expect_refusal({{"hidden_size", 0}}, "no count");
  expect_refusal({{"vocab_size", nullptr}}, "missing");
  expect_refusal({{"rms_norm_eps", -1}}, "no positive");
}

TEST_F(MirrorConfig, ReadsPublishedConfigurations) {
  const auto qwen3 = support::data_path("qwen3/config.json"),
             smollm2 = support::data_path("smollm2/config.json");
  if (!qwen3 || !smollm2) GTEST_SKIP() << support::kNoData;
  const Config q = read_config(*qwen3), s = read_config(*smollm2);
  EXPECT_EQ(q.head_dim, 128);
  EXPECT_EQ(q.rope_theta, 1e6);
  EXPECT_TRUE(q.tied_head && q.qk_norm());
  EXPECT_EQ(s.head_dim, 64);
  EXPECT_EQ(s.rms_norm_eps, 1e-5);
  EXPECT_EQ(s.rope_theta, 1e5);
}

}  // namespace
}  // namespace tandem::mirror
