#include "src/model/micro_batch.hpp"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(MicroBatch, PacksSamplesAndScoresOnlyFromTheSameSample) {
  SampleSet samples;
  // Token 0 is marked but never scored: it has no context, least of all the neighbour's.
  samples.add(std::vector<std::int32_t>{10, 11, 12}, std::vector<std::uint8_t>{1, 0, 1}, 1);
  samples.add(std::vector<std::int32_t>{20}, std::vector<std::uint8_t>{1}, 2);
  samples.add(std::vector<std::int32_t>{30, 31}, std::vector<std::uint8_t>{1, 1}, 3);
  MicroBatch batch;
  batch.pack(samples, std::vector<std::int64_t>{2, 1, 0});
  EXPECT_EQ(batch.ids, (std::vector<std::int32_t>{30, 31, 20, 10, 11, 12}));
  EXPECT_EQ(batch.position, (std::vector<std::int32_t>{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(batch.sample_begin, (std::vector<std::int32_t>{0, 2, 3, 6}));
  EXPECT_EQ(batch.scored_row, (std::vector<std::int32_t>{0, 4}));
  EXPECT_EQ(batch.target, (std::vector<std::int32_t>{31, 12}));
  batch.pack(samples, std::vector<std::int64_t>{1});
  EXPECT_EQ(batch.n_scored(), 0);
  EXPECT_EQ(batch.n_tokens(), 1);
}

}  // namespace
}  // namespace tandem
