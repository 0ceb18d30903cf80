#include "src/model/lora.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <iomanip>
#include <set>
#include <sstream>

#include "tests/support/data.hpp"

namespace tandem {
namespace {

ModelConfig config_of(std::int64_t hidden, std::int64_t intermediate, HeadShape heads, std::int64_t layers) {
  ModelConfig config;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.heads = heads;
  config.n_layers = layers;
  return config;
}

const std::vector<std::string> kAll = {"q", "k", "v", "o", "gate", "up", "down"};

std::string hex_of(float value) {
  std::ostringstream out;
  out << std::hex << std::setw(8) << std::setfill('0') << std::bit_cast<std::uint32_t>(value);
  return out.str();
}

// A as data/vectors/spec_vectors.json has it, whatever module of whatever model it belongs to.
TEST(Lora, FirstValuesOfAAreTheSpecVectors) {
  const auto path = support::data_path("vectors/spec_vectors.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  const auto vectors = support::read_json(*path)["lora_a"];
  ASSERT_EQ(vectors.size(), 4u);
  for (const auto& row : vectors) {
    const std::string module = row["module"];
    const std::int64_t in = row["in"], rank = row["r"];
    // Any sizes that give this module the wanted input: all of a layer's inputs are equal.
    const LoraLayout lora(config_of(in, in, {1, 1, in}, 28), rank, 1.0, kAll);
    std::vector<float> flat(static_cast<std::size_t>(lora.size()));
    lora.initialise(flat, row["seed"].get<std::uint64_t>());
    const auto tensor = std::find_if(lora.tensors().begin(), lora.tensors().end(), [&](const LoraTensor& t) {
      return t.name == module + ".lora_A.weight";
    });
    ASSERT_NE(tensor, lora.tensors().end()) << module;
    ASSERT_EQ(tensor->size(), rank * in);
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(hex_of(flat[static_cast<std::size_t>(tensor->offset) + i]),
                row["first8_float32_bits"][i].get<std::string>());
    EXPECT_EQ(hex_of(flat[static_cast<std::size_t>(tensor->offset + tensor->size() - 1)]),
              row["last_float32_bits"].get<std::string>());
  }
}

TEST(Lora, ABeginsWithTheSpecVectorsWithoutTheDataFolderToo) {
  const LoraLayout lora(config_of(64, 160, {4, 2, 16}, 1), 4, 1.0, {"q"});
  std::vector<float> flat(static_cast<std::size_t>(lora.size()));
  lora.initialise(flat, 20240607);
  EXPECT_EQ(hex_of(flat[0]), "3c3389de");
  EXPECT_EQ(hex_of(flat[255]), "3ddce6d9");
}

TEST(Lora, TensorsStandInByteOrderOfTheirNamesAndDoNotOverlap) {
  const LoraLayout lora(config_of(24, 40, {4, 2, 8}, 12), 3, 1.0, kAll);
  ASSERT_EQ(lora.tensors().size(), 12u * 7u * 2u);
  EXPECT_TRUE(std::is_sorted(lora.tensors().begin(), lora.tensors().end(),
                             [](const LoraTensor& a, const LoraTensor& b) { return a.name < b.name; }));
  // Layer 10 comes before layer 2: bytes, not numbers.
  EXPECT_EQ(lora.tensors()[14].name, "model.layers.1.mlp.down_proj.lora_A.weight");
  EXPECT_EQ(lora.tensors()[28].name, "model.layers.10.mlp.down_proj.lora_A.weight");
  std::vector<int> owners(static_cast<std::size_t>(lora.size()), 0);
  for (const LoraTensor& t : lora.tensors())
    for (std::int64_t i = 0; i < t.size(); ++i) ++owners[static_cast<std::size_t>(t.offset + i)];
  EXPECT_LE(*std::max_element(owners.begin(), owners.end()), 1);
}

TEST(Lora, GroupsSeeTheSameTensors) {
  const LoraLayout lora(config_of(24, 40, {4, 2, 8}, 3), 3, 1.0, {"k", "v", "down"});
  std::vector<float> flat(static_cast<std::size_t>(lora.size()), 0.0f);
  const LoraGroup& qkv = lora.group(2, kQkv);
  ASSERT_EQ(qkv.members.size(), 2u);
  EXPECT_EQ(qkv.members[0].row_begin, 32);
  EXPECT_EQ(qkv.members[1].row_end, 64);
  for (std::size_t m = 0; m < 2; ++m) {
    const LoraTensor &a = lora.tensors()[qkv.members[m].a_tensor],
                     &b = lora.tensors()[qkv.members[m].b_tensor];
    EXPECT_EQ(a.name, std::string("model.layers.2.self_attn.") + (m ? "v" : "k") + "_proj.lora_A.weight");
    EXPECT_EQ(lora.a(std::span<float>(flat), qkv).row(static_cast<std::int64_t>(m) * 3),
              flat.data() + a.offset);
    EXPECT_EQ(lora.b(std::span<float>(flat), qkv.members[m]).data, flat.data() + b.offset);
    EXPECT_EQ(lora.b(std::span<float>(flat), qkv.members[m]).rows, b.rows);
  }
  EXPECT_TRUE(lora.group(2, kOut).members.empty());
  EXPECT_EQ(lora.element_name(lora.tensors()[0].offset + 25),
            "model.layers.0.mlp.down_proj.lora_A.weight[0, 25]");
}

}  // namespace
}  // namespace tandem
