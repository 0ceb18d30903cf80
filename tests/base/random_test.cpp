// Expected values: data/vectors/spec_vectors.json, computed from SPEC.md by an independent program.
#include "src/base/random.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/data.hpp"

namespace tandem {
namespace {

using support::read_json;

std::uint64_t u64(const nlohmann::json& text) { return std::stoull(text.get<std::string>()); }

TEST(Random, SpecVectors) {
  const auto path = support::data_path("vectors/spec_vectors.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  const auto vectors = read_json(*path);
  for (const auto& row : vectors["splitmix64"]) EXPECT_EQ(splitmix64(u64(row[0])), u64(row[1]));
  for (const auto& row : vectors["fnv1a64"]) EXPECT_EQ(fnv1a64(row[0].get<std::string>()), u64(row[1]));
  ASSERT_EQ(vectors["draw"].size(), 210u);
  for (const auto& row : vectors["draw"]) {
    const RandomStream stream(u64(row[0]), row[1].get<std::string>());
    EXPECT_EQ(stream.draw(u64(row[2])), u64(row[3]));
    EXPECT_EQ(stream.unit(u64(row[2])), std::stod(row[4].get<std::string>()));
  }
}

TEST(Random, KnownValuesWithoutTheDataFolder) {
  EXPECT_EQ(splitmix64(1), 10451216379200822465ull);
  EXPECT_EQ(fnv1a64("é"), 775207407765167617ull);
  EXPECT_EQ(RandomStream(0, "a").draw(2), 9478206338657987641ull);
  EXPECT_EQ(RandomStream(1, "order").draw(0), 0x9BD430759374A8C6u) << "SPEC.md, Check values";
  EXPECT_EQ(RandomStream(0, "").unit(0), 0x1.0fd34d2c79eb0p-3);
}

}  // namespace
}  // namespace tandem
