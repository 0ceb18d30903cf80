// The mirror's reader of safetensors against the format's published cases, damaged files, and weights it must
// widen.
#include "src/mirror/safetensors.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/mirror/weights.hpp"
#include "tests/mirror/tiny.hpp"
#include "tests/support/data.hpp"

namespace tandem::mirror {
namespace {

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string with_header(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

// "ok", or what the file is refused for.
std::string outcome(const support::TempFolder& folder, const std::string& bytes) {
  support::write_text(folder / "file.safetensors", bytes);
  try {
    const SafetensorsFile file(folder / "file.safetensors");
    return "ok";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
}

void expect_outcome(const support::TempFolder& folder, const std::string& bytes,
                    const std::string& expected) {
  const std::string got = outcome(folder, bytes);
  EXPECT_NE(got.find(expected), std::string::npos) << expected << " expected, got " << got;
}

TEST(MirrorSafetensors, PublishedCasesEndAsTheFormatsReaderEndsThem) {
  const auto path = support::data_path("vectors/safetensors_cases.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  const support::TempFolder folder;
  for (const auto& row : support::read_json(*path))
    expect_outcome(folder, bytes_of_hex(row.at("hex")), row.at("expect").get<std::string>());
}

TEST(MirrorSafetensors, AnAbusiveFileIsRefused) {
  const auto path = support::data_path("hostile/safetensors/safetensors_abuse_attempt_1.safetensors");
  if (!path) GTEST_SKIP() << support::kNoData;
  EXPECT_THROW(SafetensorsFile{*path}, Error);
}

TEST(MirrorSafetensors, DamageIsNamed) {
  const support::TempFolder folder;
  const std::string one = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect_outcome(folder, with_header("{" + one + "}", 8), "ok");
  expect_outcome(folder, with_header("{" + one + "}", 7), "MetadataIncompleteBuffer");
  expect_outcome(folder, with_header("{" + one + "}", 9), "MetadataIncompleteBuffer");
  expect_outcome(folder, with_header("{" + one + "," + one + "}", 8), "there twice");
  expect_outcome(folder, with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
                 "TensorInvalidInfo");
  expect_outcome(folder, with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
                 "InvalidOffset");
  expect_outcome(folder, with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
                 "InvalidOffset");
  expect_outcome(folder, with_header(R"({"a":{"dtype":"F3","shape":[2],"data_offsets":[0,8]}})", 8),
                 "unknown dtype");
  expect_outcome(folder, with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
                 "no unsigned");
  expect_outcome(folder, with_header(R"({"__metadata__":{"a":1}})", 0), "no object of strings");
  expect_outcome(folder, with_header(" {}", 0), "InvalidHeader");
  std::string long_header = with_header("{}", 0);
  long_header[0] = 100;
  expect_outcome(folder, long_header, "InvalidHeaderLength");
  EXPECT_THROW(SafetensorsFile(folder / "absent"), Error);
  EXPECT_THROW(SafetensorsFile(folder.path()), Error);
}

TEST(MirrorSafetensors, HalfPrecisionWidensExactly) {
  const support::TempFolder folder;
  // F16: 1, -2, smallest subnormal, largest, infinity. BF16: 1, -3.
  const std::string header = R"({"f":{"dtype":"F16","shape":[5],"data_offsets":[0,10]},)"
                             R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[10,14]}})";
  std::string bytes = with_header(header, 0);
  for (const std::uint16_t bits : {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x3F80, 0xC040})
    bytes += std::string{static_cast<char>(bits & 255), static_cast<char>(bits >> 8)};
  support::write_text(folder / "file.safetensors", bytes);
  const SafetensorsFile file(folder / "file.safetensors");
  std::vector<double> f(5), b(2);
  file.tensors().at("f").widen(0, 5, f.data());
  file.tensors().at("b").widen(0, 2, b.data());
  EXPECT_EQ(f, (std::vector<double>{1, -2, 0x1p-24, 65504, INFINITY}));
  EXPECT_EQ(b, (std::vector<double>{1, -3}));
}

class MirrorWeights : public testing::Test {
 protected:
  void expect_error(const std::string& part) {
    try {
      const Weights weights(model, read_config(model / "config.json"));
      FAIL() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  void write(const std::map<std::string, TinyTensor>& changed) {
    write_safetensors(model / "model.safetensors", changed);
  }
  support::TempFolder folder;
  std::filesystem::path model = make_tiny(folder, "qwen3");
  std::map<std::string, TinyTensor> tensors = tiny_tensors(tiny_config("qwen3"));
};

TEST_F(MirrorWeights, MissingUnknownAndMisshapenTensorsAreErrors) {
  auto changed = tensors;
  changed.erase("model.norm.weight");
  write(changed);
  expect_error("`model.norm.weight` is missing");
  changed = tensors;
  changed["model.extra.weight"] = {{1}, {0}};
  write(changed);
  expect_error("`model.extra.weight` is no tensor");
  changed = tensors;
  std::swap(changed["model.layers.0.mlp.down_proj.weight"].shape[0],
            changed["model.layers.0.mlp.down_proj.weight"].shape[1]);
  write(changed);
  expect_error("has shape [20, 12], the configuration wants [12, 20]");
}

TEST_F(MirrorWeights, AStoredHeadIsIgnoredWhereItIsTiedAndWarnedOfWhereItDiffers) {
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  write(tensors);
  const Config config = read_config(model / "config.json");
  const auto same = Weights(model, config);
  EXPECT_TRUE(same.warnings().empty());
  EXPECT_EQ(same.names().size(), tensors.size() - 1);
  tensors["lm_head.weight"].values[0] += 1;
  write(tensors);
  const auto other = Weights(model, config);
  EXPECT_EQ(other.warnings().size(), 1u);
  EXPECT_EQ(other.head().widen(), other.embedding().widen());
}

TEST_F(MirrorWeights, ARotaryTableOfAnOldFileIsIgnored) {
  const std::size_t needed = tensors.size();
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{2}, {1, 0.5}};
  write(tensors);
  EXPECT_EQ(Weights(model, read_config(model / "config.json")).names().size(), needed);
}

TEST_F(MirrorWeights, ShardsAreReadAsTheirIndexSays) {
  std::map<std::string, TinyTensor> first, second;
  nlohmann::json index;
  for (const auto& [name, tensor] : tensors) {
    const bool early = name < "model.layers.1";
    (early ? first : second)[name] = tensor;
    index["weight_map"][name] = early ? "one.safetensors" : "two.safetensors";
  }
  const Config config = read_config(model / "config.json");
  const auto whole = Weights(model, config).names();
  std::filesystem::remove(model / "model.safetensors");
  expect_error("neither model.safetensors nor its index");
  write_safetensors(model / "one.safetensors", first);
  write_safetensors(model / "two.safetensors", second);
  support::write_text(model / "model.safetensors.index.json", index.dump());
  const Weights weights(model, config);
  EXPECT_EQ(weights.names(), whole);
  index["weight_map"]["model.norm.weight"] = "one.safetensors";
  support::write_text(model / "model.safetensors.index.json", index.dump());
  expect_error("is not in it");
  index["weight_map"]["model.norm.weight"] = "../two.safetensors";
  support::write_text(model / "model.safetensors.index.json", index.dump());
  expect_error("no file of the folder");
}

TEST_F(MirrorWeights, DescribeTensorsByDigestMeanAndRms) {
  const Weights weights(model, read_config(model / "config.json"));
  const auto& values = tensors["model.norm.weight"].values;
  const LoadedTensor loaded = weights.describe("model.norm.weight");
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  EXPECT_EQ(loaded.digest, sha256_hex({reinterpret_cast<const char*>(values.data()), 4 * values.size()}));
  EXPECT_DOUBLE_EQ(loaded.mean, sum / 12);
  EXPECT_DOUBLE_EQ(loaded.rms, std::sqrt(squares / 12));
  EXPECT_EQ(loaded.dtype, "F32");
  EXPECT_EQ(weights.memory_digest("model.norm.weight"), loaded.digest);
  const auto bf16 = make_tiny(folder, "llama", true);
  const Weights narrow(bf16, read_config(bf16 / "config.json"));
  std::vector<float> kept = values;
  for (float& value : kept) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF0000u);
  EXPECT_EQ(narrow.describe("model.norm.weight").dtype, "BF16");
  EXPECT_EQ(narrow.memory_digest("model.norm.weight"),
            sha256_hex({reinterpret_cast<const char*>(kept.data()), 4 * kept.size()}));
}

}  // namespace
}  // namespace tandem::mirror
