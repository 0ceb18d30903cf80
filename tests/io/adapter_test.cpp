#include "io/adapter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/safetensors.hpp"
#include "src/base/error.hpp"
#include "tests/support/data.hpp"
#include "tests/support/edit_tensors.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;

constexpr const char* kModule = "model.layers.0.self_attn.q_proj";

struct Example {
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {-1, 0.5f, 1e-30f, 4};
  AdapterConfig config = {
      .rank = 2, .alpha = 12.0, .dropout = 0.05, .target_modules = {"q_proj"}, .base_model = "models/é"};
  std::vector<AdapterTensor> tensors = {{std::string(kModule) + ".lora_A.weight", 2, 3, a},
                                        {std::string(kModule) + ".lora_B.weight", 2, 2, b}};
};

std::string refusal(const std::filesystem::path& folder, std::span<const AdapterTensor> expected) {
  try {
    read_adapter(folder, expected);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

// The same tensors under other keys.
void write_weights(const std::filesystem::path& folder, const Example& example,
                   const std::vector<std::string>& keys) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < keys.size(); ++i)
    specs.push_back({keys[i], DType::kF32, {example.tensors[i].rows, example.tensors[i].cols}});
  SafetensorsWriter writer(folder / "adapter_model.safetensors", specs);
  for (std::size_t i = 0; i < keys.size(); ++i) writer.write(example.tensors[i].data);
  writer.publish();
}

void change_config(const std::filesystem::path& folder, const char* key, const nlohmann::json& value) {
  auto config = support::read_json(folder / "adapter_config.json");
  config[key] = value;
  support::write_text(folder / "adapter_config.json", config.dump());
}

TEST(Adapter, HasPeftsKeysAndSettings) {
  TempFolder folder;
  const Example example;
  write_adapter(folder / "adapter", example.config, example.tensors);
  const SafetensorsFile file(folder / "adapter/adapter_model.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_TRUE(file.find("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_TRUE(file.find("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const auto config = support::read_json(folder / "adapter/adapter_config.json");
  EXPECT_EQ(config["r"], 2);
  EXPECT_TRUE(config["lora_alpha"].is_number_integer());
  EXPECT_EQ(config["lora_alpha"], 12);
  EXPECT_EQ(config["use_rslora"], false);
  EXPECT_EQ(config["lora_dropout"], 0.05);
  EXPECT_EQ(config["target_modules"], nlohmann::json({"q_proj"}));
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["bias"], "none");
  EXPECT_EQ(config["base_model_name_or_path"], "models/é");
}

TEST(Adapter, KeepsEveryKeyThatPeftItselfWrites) {
  const auto path = support::data_path("peft/adapter_config.text_gen.lora_r8.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  TempFolder folder;
  const Example example;
  write_adapter(folder / "adapter", example.config, example.tensors);
  const auto config = support::read_json(folder / "adapter/adapter_config.json");
  const auto published = support::read_json(*path);
  for (const auto& [key, value] : published.items()) {
    ASSERT_TRUE(config.contains(key)) << key;
    if (!config[key].is_null() && !value.is_null()) {
      EXPECT_STREQ(config[key].type_name(), value.type_name()) << key;
    }
  }
}

TEST(Adapter, ReadsBackWhatItWrote) {
  TempFolder folder;
  Example example;
  example.config.alpha = 1.5;
  example.config.rslora = true;
  for (int round = 0; round < 2; ++round) write_adapter(folder / "adapter", example.config, example.tensors);
  const std::vector<AdapterTensor> swapped = {example.tensors[1], example.tensors[0]};
  const Adapter adapter = read_adapter(folder / "adapter", swapped);
  EXPECT_EQ(adapter.tensors[0], example.b);
  EXPECT_EQ(adapter.tensors[1], example.a);
  EXPECT_EQ(adapter.config.alpha, 1.5);
  EXPECT_TRUE(adapter.config.rslora);
  EXPECT_EQ(adapter.config.dropout, 0.05);
  EXPECT_EQ(adapter.config.base_model, "models/é");
  EXPECT_FALSE(support::has_temporaries(folder.path()));
}

TEST(Adapter, RefusesKeysThatMatchNothing) {
  TempFolder folder;
  const Example example;
  write_adapter(folder / "adapter", example.config, example.tensors);
  const std::string prefix = "base_model.model.", module = kModule;
  write_weights(folder / "adapter", example,
                {prefix + module + ".lora_A.default.weight", prefix + module + ".lora_B.default.weight"});
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "carries an adapter's name (\"default\")");
  write_weights(folder / "adapter", example, {module + ".lora_A.weight", module + ".lora_B.weight"});
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "lacks the prefix base_model.model.");
  write_weights(
      folder / "adapter", example,
      {prefix + module + ".lora_A.weight", prefix + "model.layers.1.self_attn.q_proj.lora_B.weight"});
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "belongs to no module of this run");
  write_weights(folder / "adapter", example, {prefix + module + ".lora_A.weight"});
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "q_proj.lora_B.weight\": is missing");
}

TEST(Adapter, RefusesWhatItWouldComputeOtherwise) {
  TempFolder folder;
  const Example example;
  const auto fresh = [&] { write_adapter(folder / "adapter", example.config, example.tensors); };
  const std::pair<const char*, nlohmann::json> settings[] = {
      {"use_dora", true},
      {"bias", "all"},
      {"fan_in_fan_out", true},
      {"peft_type", "IA3"},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"q_proj", 4}}},
      {"modules_to_save", {"lm_head"}},
      {"lora_bias", true},
      {"layers_to_transform", {1}},
  };
  for (const auto& [key, value] : settings) {
    fresh();
    change_config(folder / "adapter", key, value);
    EXPECT_SAYS(refusal(folder / "adapter", example.tensors), std::string(key) + " = ");
  }
  fresh();
  change_config(folder / "adapter", "r", 3);
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "r = 3, but");
  fresh();
  change_config(folder / "adapter", "r", "2");
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "r is not a number");
  fresh();
  support::write_text(folder / "adapter/adapter_config.json", "{\"r\": ");
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "adapter_config.json line 1");
  std::filesystem::remove(folder / "adapter/adapter_config.json");
  EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "cannot be opened");
  EXPECT_SAYS(refusal(folder / "none", example.tensors), "is not a folder");
  fresh();
  auto other = example.tensors;
  other[0].cols = 4;
  EXPECT_SAYS(refusal(folder / "adapter", other), "has shape [2, 3], expected [2, 4]");
}

TEST(Adapter, RefusesValuesThatAreNotFinite) {
  TempFolder folder;
  const Example good;
  const auto file = folder / "adapter/adapter_model.safetensors";
  const std::pair<float, const char*> values[] = {
      {std::nanf(""), "NaN"}, {HUGE_VALF, "infinity"}, {-HUGE_VALF, "-infinity"}};
  for (const auto& [value, word] : values) {
    Example bad;
    bad.a[4] = value;  // the tensors view the vectors
    write_adapter(folder / "adapter", bad.config, bad.tensors);
    const std::string text = refusal(folder / "adapter", bad.tensors);
    EXPECT_TRUE(text.starts_with(file.string())) << text;
    EXPECT_SAYS(text, std::string(kModule) + ".lora_A.weight\": element [1, 1] is " + word + ";");
  }
  write_adapter(folder / "adapter", good.config, good.tensors);
  support::edit_tensors(file, [](auto& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name.ends_with("lora_B.weight")) tensor.values[3] = std::nanf("");
  });
  EXPECT_SAYS(refusal(folder / "adapter", good.tensors), "lora_B.weight\": element [1, 1] is NaN");
}

TEST(Adapter, ItsAlphaIsAboveZeroAndItsDropoutAShare) {
  TempFolder folder;
  const Example example;
  write_adapter(folder / "adapter", example.config, example.tensors);
  for (const double alpha : {0.0, -16.0}) {
    change_config(folder / "adapter", "lora_alpha", alpha);
    EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "must be a number > 0");
  }
  change_config(folder / "adapter", "lora_alpha", 1e-3);
  EXPECT_EQ(refusal(folder / "adapter", example.tensors), "");
  for (const double dropout : {-0.1, 1.5}) {
    change_config(folder / "adapter", "lora_dropout", dropout);
    EXPECT_SAYS(refusal(folder / "adapter", example.tensors), "lora_dropout = ");
  }
}

// What read_adapter_config says, without the folder's path.
std::string settings_refusal(const std::filesystem::path& folder) {
  try {
    read_adapter_config(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const std::string text = error.what(), file = (folder / "adapter_config.json").string() + ": ";
    EXPECT_TRUE(text.starts_with(file)) << text;
    return text.substr(std::min(text.size(), file.size()));
  }
  return "";
}

TEST(Adapter, ItsTargetModulesAreThoseOfItsTensors) {
  TempFolder folder;
  const Example example;
  write_adapter(folder / "adapter", example.config, example.tensors);
  const auto with = [&](const nlohmann::json& targets) {
    change_config(folder / "adapter", "target_modules", targets);
    return settings_refusal(folder / "adapter");
  };
  for (const nlohmann::json& good : {nlohmann::json{"q_proj"}, nlohmann::json{"self_attn.q_proj"},
                                     nlohmann::json{kModule}, nlohmann::json{"q_proj", kModule}}) {
    EXPECT_EQ(with(good), "");
    EXPECT_EQ(read_adapter_config(folder / "adapter").target_modules, std::vector<std::string>{"q_proj"});
    EXPECT_EQ(read_adapter_config(folder / "adapter").warning, "");
  }
  const std::string idle = ", of which adapter_model.safetensors holds no tensor",
                    unnamed = ", of which adapter_model.safetensors holds tensors";
  EXPECT_EQ(with({"q_proj", "v_proj", "up_proj"}), "target_modules asks for \"up_proj\", \"v_proj\"" + idle);
  EXPECT_EQ(with({"proj"}), "target_modules asks for \"proj\"" + idle) << "a part of a name is no name";
  EXPECT_EQ(with({"model.layers.1.self_attn.q_proj"}),
            "target_modules asks for \"model.layers.1.self_attn.q_proj\"" + idle);
  EXPECT_EQ(with(nlohmann::json::array()), "target_modules leaves out \"q_proj\"" + unnamed);
  EXPECT_EQ(with("all-linear"),
            "target_modules asks for \"down_proj\", \"gate_proj\", \"k_proj\", \"o_proj\", "
            "\"up_proj\", \"v_proj\"" +
                idle);
  EXPECT_EQ(with(3), "target_modules is neither a list nor a text");
  EXPECT_EQ(with({3}), "target_modules holds something that is not text");
  EXPECT_EQ(with(".*q_proj"), "");
  EXPECT_SAYS(read_adapter_config(folder / "adapter").warning,
              "target_modules is the pattern \".*q_proj\", which was not compared with the tensors");
  EXPECT_EQ(with(nullptr), "");
  EXPECT_SAYS(read_adapter_config(folder / "adapter").warning, "target_modules is not given");
}

TEST(Adapter, ATensorThatTargetModulesLeaveOutIsRefused) {
  TempFolder folder;
  const Example example;
  AdapterConfig config = example.config;
  config.target_modules = {"q_proj", "up_proj"};
  std::vector<AdapterTensor> tensors = example.tensors;
  tensors.push_back({"model.layers.0.mlp.up_proj.lora_A.weight", 2, 3, example.a});
  tensors.push_back({"model.layers.0.mlp.up_proj.lora_B.weight", 2, 2, example.b});
  write_adapter(folder / "adapter", config, tensors);
  EXPECT_EQ(settings_refusal(folder / "adapter"), "");
  change_config(folder / "adapter", "target_modules", {"q_proj"});
  EXPECT_EQ(settings_refusal(folder / "adapter"),
            "target_modules leaves out \"up_proj\", of which adapter_model.safetensors holds tensors");
}

TEST(Adapter, ATensorWithoutAModuleIsRefused) {
  TempFolder folder;
  const Example example;
  for (const char* name : {"base_model.model.lora_A.weight", "base_model.model..lora_A.weight"}) {
    write_adapter(folder / "adapter", example.config, example.tensors);
    write_weights(folder / "adapter", example, {name});
    try {
      read_adapter_config(folder / "adapter");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_SAYS(std::string(error.what()), std::string("tensor ") + name + " belongs to no module");
    }
  }
}

// A path need not be UTF-8, JSON must be.
TEST(Adapter, ABaseModelThatIsNoUtf8IsWrittenWithReplacements) {
  TempFolder folder;
  Example example;
  example.config.base_model = "mod\xe9l/\xff";
  write_adapter(folder / "adapter", example.config, example.tensors);
  EXPECT_EQ(read_adapter_config(folder / "adapter").base_model, "mod\xEF\xBF\xBDl/\xEF\xBF\xBD");
}

TEST(Adapter, RefusesToWriteTensorsThatDoNotFitTheConfig) {
  TempFolder folder;
  const auto refused = [&](const Example& example) {
    EXPECT_THROW(write_adapter(folder / "adapter", example.config, example.tensors), Error);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  };
  Example rank;
  rank.config.rank = 3;
  refused(rank);
  Example missing;
  missing.tensors.pop_back();
  refused(missing);
  Example twice;
  twice.tensors.push_back(twice.tensors[0]);
  refused(twice);
  Example targets;
  targets.config.target_modules = {"q_proj", "v_proj"};
  refused(targets);
}

TEST(Adapter, DigestTakesTheTensorsInByteOrderOfTheirNames) {
  const Example example;
  const auto digest = adapter_digest(example.tensors);
  EXPECT_EQ(digest, adapter_digest(std::vector<AdapterTensor>{example.tensors[1], example.tensors[0]}));
  // sha256 of the ten little-endian float32 1 2 3 4 5 6 -1 0.5 1e-30 4, by Python's hashlib and struct.
  EXPECT_EQ(digest, "4d92ba08b14d13aeb7802f215b9c6a01f5502e87c4738219b543c0ff30f3b59e");
}

}  // namespace
}  // namespace tandem
