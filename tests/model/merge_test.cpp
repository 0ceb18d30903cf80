#include "src/model/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/model/loaded_model.hpp"
#include "tests/support/edit_tensors.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/tiny_adapter.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<float> values_of(const ModelTensors& tensors, const std::string& name) {
  const TensorRecord& record = *tensors.find(name);
  std::vector<float> values(static_cast<std::size_t>(record.count()));
  widen_to_f32(record, values);
  return values;
}

struct MergeCase {
  explicit MergeCase(const std::string& type, const std::vector<std::string>& targets, double size = 0.1)
      : model_dir(support::make_tiny_model(folder, type)), config(read_model_config(model_dir)) {
    support::make_tiny_adapter(folder / "adapter", config, 4, 6.0, targets, size);
    fs::create_directory(folder / "out");
  }
  MergeReport merge(std::optional<DType> dtype = {}) {
    const CpuContext ctx(2);
    return write_merged_model(ctx, folder / "out", read_model_config(model_dir), ModelTensors(model_dir),
                              load_adapter(folder / "adapter", config), dtype);
  }

  support::TempFolder folder;
  fs::path model_dir;
  ModelConfig config;
};

// W + (6/4) B A, from the files alone.
std::map<std::string, std::vector<double>> expected_weights(const MergeCase& merge_case) {
  const ModelTensors base(merge_case.model_dir);
  const SafetensorsFile adapter(merge_case.folder / "adapter/adapter_model.safetensors");
  std::map<std::string, std::vector<double>> merged;
  for (const TensorRecord& b : adapter.tensors()) {
    const std::size_t at = b.name.find(".lora_B.weight");
    if (at == std::string::npos) continue;
    const std::string module = b.name.substr(0, at),
                      name = module.substr(std::string("base_model.model.").size()) + ".weight";
    const TensorRecord& a = *adapter.find(module + ".lora_A.weight");
    std::vector<float> bv(static_cast<std::size_t>(b.count())), av(static_cast<std::size_t>(a.count()));
    widen_to_f32(b, bv), widen_to_f32(a, av);
    const std::vector<float> w = values_of(base, name);
    const auto out = static_cast<std::size_t>(b.shape[0]), r = static_cast<std::size_t>(b.shape[1]),
               in = static_cast<std::size_t>(a.shape[1]);
    std::vector<double>& values = merged[name];
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i) {
        double sum = 0.0;
        for (std::size_t k = 0; k < r; ++k)
          sum += static_cast<double>(bv[o * r + k]) * static_cast<double>(av[k * in + i]);
        values.push_back(static_cast<double>(w[o * in + i]) + 1.5 * sum);
      }
  }
  return merged;
}

TEST(Merge, AddsTheScaledProductAndLeavesAllElseAsItIs) {
  for (const char* type : {"qwen3", "llama"}) {
    MergeCase merge_case(type, {"q", "v", "o", "up", "down"});
    const MergeReport report = merge_case.merge();
    EXPECT_EQ(report.n_merged, 15);
    // Rounding to float32 of a sum formed in double.
    EXPECT_LE(report.relative_error, 0x1p-24);
    EXPECT_GT(report.relative_error, 0.0);
    EXPECT_LE(report.share_lost, 1e-6);
    const ModelTensors base(merge_case.model_dir), stored(merge_case.folder / "out");
    EXPECT_EQ(stored.names(), base.names());
    const auto expected = expected_weights(merge_case);
    ASSERT_EQ(expected.size(), 15u);
    for (const std::string& name : base.names()) {
      const auto found = expected.find(name);
      const std::vector<float> values = values_of(stored, name);
      EXPECT_EQ(values == values_of(base, name), found == expected.end()) << name;
      if (found == expected.end()) continue;
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], static_cast<float>(found->second[i])) << name;
    }
  }
}

TEST(Merge, RoundsOnceToTheDtypeAskedFor) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    MergeCase merge_case("qwen3", support::kAllTargets);
    const MergeReport report = merge_case.merge(dtype);
    // Half a unit in the last of 8 or 11 digits; float16's subnormals have fewer digits.
    const double half_ulp = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    if (dtype == DType::kBF16) {
      EXPECT_LE(report.relative_error, half_ulp);
    }
    EXPECT_GE(report.relative_error, 0.9 * half_ulp)
        << "the largest of thousands of errors is near its bound";
    const ModelTensors stored(merge_case.folder / "out");
    for (const auto& [name, values] : expected_weights(merge_case)) {
      EXPECT_EQ(stored.find(name)->dtype_name, name_of(dtype));
      const std::vector<float> read = values_of(stored, name);
      for (std::size_t i = 0; i < read.size(); ++i)
        ASSERT_EQ(read[i], dtype == DType::kBF16 ? bf16_to_f32(f64_to_bf16(values[i]))
                                                 : f16_to_f32(f64_to_f16(values[i])));
    }
  }
}

// Next to weights near 1, bfloat16's spacing is 2^-7: a change of 1e-3 vanishes, and the report says so.
TEST(Merge, SaysThatRoundingHasTakenTheChange) {
  MergeCase merge_case("qwen3", {"down"});
  std::vector<TensorSpec> specs;
  {
    const ModelTensors base(merge_case.model_dir);
    for (const std::string& name : base.names())
      specs.push_back({name, DType::kBF16, base.find(name)->shape});
  }
  SafetensorsWriter writer(merge_case.model_dir / "model.safetensors", specs);
  for (const TensorSpec& spec : specs) {
    std::int64_t count = 1;
    for (const auto dim : spec.shape) count *= dim;
    const std::vector<std::uint16_t> ones(static_cast<std::size_t>(count), f32_to_bf16(1.0f));
    writer.write(std::span<const std::uint16_t>(ones));
  }
  writer.publish();
  support::make_tiny_adapter(merge_case.folder / "adapter", merge_case.config, 4, 4.0, {"down"}, 0.02);
  const MergeReport report = merge_case.merge();
  EXPECT_NEAR(report.share_lost, 1.0, 1e-12);
  EXPECT_TRUE(report.worst_module.ends_with("down_proj")) << report.worst_module;
  for (const float value :
       values_of(ModelTensors(merge_case.folder / "out"), "model.layers.0.mlp.down_proj.weight"))
    ASSERT_EQ(value, 1.0f);
}

TEST(Merge, KeepsShardsAndTheirIndex) {
  MergeCase merge_case("llama", {"q", "gate"});
  const auto whole = merge_case.merge();
  const fs::path sharded = merge_case.folder / "sharded";
  fs::create_directory(sharded);
  fs::copy_file(merge_case.model_dir / "config.json", sharded / "config.json");
  {
    const ModelTensors base(merge_case.model_dir);
    nlohmann::json places;
    const std::vector<std::string> names = base.names();
    for (std::size_t shard = 0; shard < 2; ++shard) {
      std::vector<TensorSpec> specs;
      for (std::size_t i = shard; i < names.size(); i += 2)
        specs.push_back({names[i], DType::kF32, base.find(names[i])->shape});
      const std::string file = cat("model-0000", shard + 1, "-of-00002.safetensors");
      SafetensorsWriter writer(sharded / file, specs);
      for (const TensorSpec& spec : specs) {
        writer.write(base.find(spec.name)->data);
        places[spec.name] = file;
      }
      writer.publish();
    }
    support::write_text(sharded / "model.safetensors.index.json",
                        nlohmann::json{{"weight_map", places}}.dump());
  }
  const fs::path out = merge_case.folder / "sharded-out";
  fs::create_directory(out);
  const CpuContext ctx(1);
  const MergeReport report =
      write_merged_model(ctx, out, merge_case.config, ModelTensors(sharded),
                         load_adapter(merge_case.folder / "adapter", merge_case.config), {});
  EXPECT_EQ(report.relative_error, whole.relative_error);
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
  const ModelTensors one(merge_case.folder / "out"), two(out);
  ASSERT_EQ(one.names(), two.names());
  std::int64_t bytes = 0;
  for (const std::string& name : one.names()) {
    EXPECT_EQ(values_of(one, name), values_of(two, name)) << name;
    bytes += 4 * one.find(name)->count();
  }
  EXPECT_EQ(read_strict_json(out / "model.safetensors.index.json")["metadata"]["total_size"], bytes);
}

// What `work` is refused with; "" where it is not.
template <class Work>
std::string refusal_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return error.what();
  }
  return "";
}

TEST(Merge, RefusesASumThatOverflows) {
  MergeCase merge_case("qwen3", {"down"}, 1e4);
  const std::string half = refusal_of([&] { merge_case.merge(DType::kF16); });
  EXPECT_TRUE(
      half.starts_with("merging model.layers.0.mlp.down_proj: the sum W + s B A overflows F16 at [0, "))
      << half;
  EXPECT_SAYS(half, "; choose --dtype F32");
  // 1e30 * 1e30: nothing holds it, and no other dtype is advised.
  support::make_tiny_adapter(merge_case.folder / "adapter", merge_case.config, 4, 6.0, {"down"}, 1e30);
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kF32)}) {
    const std::string whole = refusal_of([&] { merge_case.merge(dtype); });
    EXPECT_SAYS(whole, "down_proj: the sum W + s B A overflows F32 at [0, ");
    EXPECT_EQ(whole.find("--dtype"), whole.npos) << whole;
  }
}

TEST(Merge, RefusesAValueThatTheDtypeAskedForCannotHold) {
  MergeCase merge_case("qwen3", {"down"});
  support::edit_tensors(merge_case.model_dir / "model.safetensors",
                        [](auto& tensors) { tensors["model.norm.weight"].values[5] = 1e6f; });
  EXPECT_SAYS(
      refusal_of([&] { merge_case.merge(DType::kF16); }),
      "model.safetensors: tensor model.norm.weight: element [5] = 1e+06 overflows F16; choose --dtype "
      "F32");
}

// Not finite, missing, left over, misshapen: a merged model must not hide it.
TEST(Merge, RefusesEveryModelThatLoadingRefuses) {
  using Tensors = std::map<std::string, support::EditedTensor>;
  const std::string q = "model.layers.1.self_attn.q_proj.weight", norm = "model.norm.weight";
  struct Case {
    const char* type;
    std::string part;
    std::function<void(Tensors&)> change;
  };
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {"qwen3", "model.norm.weight is missing", [&](Tensors& t) { t.erase(norm); }},
      {"llama", "lm_head.weight is missing", [&](Tensors& t) { t.erase("lm_head.weight"); }},
      {"qwen3", q + "_scale_inv is not part",
       [&](Tensors& t) {
         t[q + "_scale_inv"] = {{1}, {1.0f}};
       }},
      {"qwen3", "model.layers.3.mlp.up_proj.weight is not part",
       [&](Tensors& t) { t["model.layers.3.mlp.up_proj.weight"] = t["model.layers.2.mlp.up_proj.weight"]; }},
      {"qwen3", "\"model.embed_tokens.weight\": has shape [150, 96], expected [300, 48]",
       [&](Tensors& t) {
         t["model.embed_tokens.weight"].shape = {150, 96};
       }},
      {"qwen3", "\"model.norm.weight\": element [7] is NaN", [&](Tensors& t) { t[norm].values[7] = nan; }},
      {"llama", "\"lm_head.weight\": element [299, 47] is -infinity",
       [&](Tensors& t) { t["lm_head.weight"].values.back() = -infinity; }},
      {"qwen3", "\"" + q + "\": element [1, 2] is infinity", [&](Tensors& t) { t[q].values[50] = infinity; }},
      {"qwen3", "\"lm_head.weight\": element [0, 0] is NaN",
       [&](Tensors& t) { (t["lm_head.weight"] = t["model.embed_tokens.weight"]).values[0] = nan; }},
  };
  for (const Case& broken : cases)
    for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kBF16)}) {
      MergeCase merge_case(broken.type, support::kAllTargets);
      support::edit_tensors(merge_case.model_dir / "model.safetensors", broken.change);
      const std::string merged = refusal_of([&] { merge_case.merge(dtype); }),
                        loaded = refusal_of([&] { load_model(merge_case.model_dir); });
      EXPECT_SAYS(merged, broken.part);
      EXPECT_SAYS(merged, (merge_case.model_dir / "model.safetensors").string());
      EXPECT_EQ(merged, loaded);
    }
}

TEST(Merge, WarnsOfAHeadThatIsIgnored) {
  MergeCase merge_case("qwen3", {"q"});
  support::edit_tensors(merge_case.model_dir / "model.safetensors", [](auto& tensors) {
    (tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]).values[0] += 1.0f;
  });
  const MergeReport report = merge_case.merge();
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_SAYS(report.warnings[0], "differs from the embedding and is ignored");
}

TEST(AdapterFolder, AModuleThatIsNoProjectionAndALayerTooManyAreRefused) {
  MergeCase merge_case("qwen3", {"q"});
  const auto refusal = [&](const ModelConfig& config) -> std::string {
    try {
      load_adapter(merge_case.folder / "adapter", config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(merge_case.config), "");
  ModelConfig fewer = merge_case.config, more = merge_case.config;
  fewer.n_layers -= 1, more.n_layers += 1;
  EXPECT_NE(refusal(fewer).find("belongs to no module"), std::string::npos) << refusal(fewer);
  EXPECT_NE(refusal(more).find("is missing"), std::string::npos) << refusal(more);
  const LoadedAdapter loaded = load_adapter(merge_case.folder / "adapter", merge_case.config);
  EXPECT_EQ(loaded.text(), "rank 4, alpha 6, 3 of 3 modules active");
}

}  // namespace
}  // namespace tandem
