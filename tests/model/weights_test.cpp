// The digests of base weights as they lie in memory, fused and widened.
#include "src/model/weights.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "src/base/sha256.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

struct Loaded {
  Loaded(const std::string& type, const std::string& dtype) {
    InitModelOptions options;
    options.out = folder / "model";
    options.type = type, options.dtype = dtype;
    options.hidden = 32, options.layers = 11, options.heads = 4, options.kv_heads = 2, options.head_dim = 8;
    options.intermediate = 40, options.vocab = 300, options.tied = type == "qwen3";
    std::ostringstream said;
    init_model_command(options, said);
    config = read_model_config(options.out);
    memory = Arena(Weights::bytes(config), "weights");
    weights.emplace(config, memory.block());
    weights->load(ModelTensors(options.out));
  }
  std::vector<std::string> digests() const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < weights->n_tensors(); ++i) all.push_back(weights->memory_digest(i));
    return all;
  }
  support::TempFolder folder;
  ModelConfig config;
  Arena memory;
  std::optional<Weights> weights;
};

TEST(WeightsInMemory, OfAFloat32FileHaveTheFilesDigests) {
  for (const char* type : {"qwen3", "llama"}) {
    const Loaded model(type, "F32");
    const auto& rows = model.weights->load_rows();
    ASSERT_EQ(model.weights->n_tensors(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(model.weights->memory_digest(i), rows[i].digest) << rows[i].name;
    for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1].name, rows[i].name);
  }
}

TEST(WeightsInMemory, OfABf16FileAreItsValuesWidened) {
  const Loaded model("qwen3", "BF16");
  const ModelTensors tensors(model.folder / "model");
  const auto& rows = model.weights->load_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TensorRecord& record = *tensors.find(rows[i].name);
    std::vector<float> values(record.data.size() / 2);
    for (std::size_t k = 0; k < values.size(); ++k) {
      std::uint16_t half = 0;
      std::memcpy(&half, record.data.data() + 2 * k, 2);
      const std::uint32_t bits = std::uint32_t{half} << 16;
      std::memcpy(&values[k], &bits, 4);
    }
    EXPECT_EQ(model.weights->memory_digest(i), Sha256().update(std::span<const float>(values)).hex())
        << rows[i].name;
    EXPECT_NE(model.weights->memory_digest(i), rows[i].digest);
  }
}

// Below what BF16 resolves, too; in a part of a fused matrix, and of that part alone.
TEST(WeightsInMemory, AFlippedBitChangesTheDigestOfItsTensorAlone) {
  const Loaded model("qwen3", "BF16");
  const auto before = model.digests();
  const ConstMatrix gate_up = model.weights->layer(10).fused[kGateUp];
  for (const std::int64_t row : {std::int64_t{39}, std::int64_t{40}}) {  // the last of gate, the first of up
    auto* value = const_cast<float*>(gate_up.row(row) + 31);
    const float kept = *value;
    std::uint32_t bits = 0;
    std::memcpy(&bits, value, 4);
    bits ^= 1;
    std::memcpy(value, &bits, 4);
    const auto after = model.digests();
    std::vector<std::string> changed;
    for (std::size_t i = 0; i < before.size(); ++i)
      if (after[i] != before[i]) changed.push_back(model.weights->load_rows()[i].name);
    EXPECT_EQ(changed, std::vector<std::string>{row == 39 ? "model.layers.10.mlp.gate_proj.weight"
                                                          : "model.layers.10.mlp.up_proj.weight"});
    *value = kept;
  }
  EXPECT_EQ(model.digests(), before);
}

}  // namespace
}  // namespace tandem
