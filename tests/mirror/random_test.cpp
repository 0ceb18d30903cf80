// The mirror's random numbers against values that an independent program computed from SPEC.md.
#include "src/mirror/random.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <string>

#include "tests/support/data.hpp"

namespace tandem::mirror {
namespace {

std::uint64_t integer(const nlohmann::json& text) { return std::stoull(text.get<std::string>()); }

std::uint32_t float_bits(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }

class MirrorRandom : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = support::data_path("vectors/spec_vectors.json");
    if (!path) GTEST_SKIP() << support::kNoData;
    vectors = support::read_json(*path);
  }
  nlohmann::json vectors;
};

TEST_F(MirrorRandom, HashesGiveThePublishedValues) {
  for (const auto& row : vectors.at("splitmix64")) EXPECT_EQ(splitmix64(integer(row[0])), integer(row[1]));
  for (const auto& row : vectors.at("fnv1a64"))
    EXPECT_EQ(fnv1a64(row[0].get<std::string>()), integer(row[1]));
}

TEST_F(MirrorRandom, DrawsGiveThePublishedValues) {
  for (const auto& row : vectors.at("draw")) {
    const std::uint64_t u = draw(integer(row[0]), row[1].get<std::string>(), integer(row[2]));
    EXPECT_EQ(u, integer(row[3]));
    EXPECT_EQ(unit(u), std::strtod(row[4].get<std::string>().c_str(), nullptr));
  }
}

TEST_F(MirrorRandom, InitialAdaptersGiveThePublishedBits) {
  for (const auto& row : vectors.at("lora_a")) {
    const auto a = initial_a(row.at("seed"), row.at("module").get<std::string>(), row.at("r"), row.at("in"));
    const auto bits = [](const nlohmann::json& hex) {
      return static_cast<std::uint32_t>(std::stoul(hex.get<std::string>(), nullptr, 16));
    };
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(float_bits(a[i]), bits(row.at("first8_float32_bits")[i])) << row.at("module") << " " << i;
    EXPECT_EQ(float_bits(a.back()), bits(row.at("last_float32_bits")));
  }
}

TEST_F(MirrorRandom, EpochOrdersAreThePublishedOnes) {
  for (const auto& row : vectors.at("order"))
    EXPECT_EQ(epoch_order(row.at("seed"), row.at("epoch"), row.at("n")),
              row.at("order").get<std::vector<std::int64_t>>());
}

TEST(MirrorRandomChecks, AreThoseOfTheSpecification) {
  EXPECT_EQ(splitmix64(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(fnv1a64("a"), 0xAF63DC4C8601EC8Cu);
}

}  // namespace
}  // namespace tandem::mirror
