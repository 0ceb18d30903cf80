// What a run refuses of its data before it trains, and what it makes of long, short and missing rows.
#include "src/train/inputs.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/train/order.hpp"
#include "tests/support/tiny_model.hpp"

namespace tandem {
namespace {

class Inputs : public testing::Test {
 protected:
  void SetUp() override {
    model_ = support::make_tiny_model(folder_, "qwen3");
    spec_.model.path = model_.string();
    spec_.train.path = (folder_ / "train.jsonl").string();
    spec_.data_max_tokens = 128;
  }
  RunInputs load(const std::string& train, const std::string& held_out = "") {
    support::write_text(folder_ / "train.jsonl", train);
    spec_.held_out.path = held_out.empty() ? "" : (folder_ / "held_out.jsonl").string();
    support::write_text(folder_ / "held_out.jsonl", held_out);
    return load_inputs(spec_, {.threads = 1, .cache = {}, .told = {}});
  }
  std::string refusal(ErrorKind kind, const std::string& train, const std::string& held_out = "") {
    try {
      load(train, held_out);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }
  // 24 tokens of frame around the prompt before the answer; bytes are tokens.
  static std::string row(std::size_t prompt, const std::string& answer) {
    return R"({"prompt":")" + std::string(prompt, 'p') + R"(","completion":")" + answer + "\"}\n";
  }

  support::TempFolder folder_;
  std::filesystem::path model_;
  RunSpec spec_;
};

// A prompt beyond the limit leaves no target: in every row that is an error before training, in one row a
// count.
TEST_F(Inputs, WhereEveryAnswerWasCutAwayAreRefused) {
  const std::string cut = row(500, "r");
  EXPECT_NE(refusal(ErrorKind::kInput, cut + cut).find("no sample has a token to learn"), std::string::npos);
  EXPECT_NE(refusal(ErrorKind::kInput, row(5, "r"), cut).find("no held-out sample has a token to score"),
            std::string::npos);
  EXPECT_NE(refusal(ErrorKind::kInput, R"({"messages":[{"role":"user","content":"q"}]})")
                .find("no sample has a token to learn"),
            std::string::npos);
  const RunInputs inputs = load(cut + row(5, "r"), row(5, "r") + cut);
  EXPECT_EQ(inputs.train.samples.size(), 2);
  EXPECT_EQ(inputs.train.samples.n_scored(0), 0);
  EXPECT_EQ(inputs.train.samples.n_scored(1), 2);
  EXPECT_EQ(inputs.train.report.without_targets, 1);
  EXPECT_EQ(inputs.train.report.cut, 1);
  EXPECT_EQ(inputs.held_out.report.without_targets, 1);
}

// 99 short rows and one far beyond the limit, in training and in held-out rows, as text and as ids.
TEST_F(Inputs, HoldTheLimitOnLengthInEverySet) {
  std::string ids = "[1", marks = "[0";
  for (int i = 1; i < 50'000; ++i) ids += ",1", marks += ",1";
  std::string rows;
  for (int i = 0; i < 99; ++i) rows += row(5, "r");
  for (const std::string& last : {row(50'000, "r"), R"({"ids":)" + ids + R"(],"targets":)" + marks + "]}\n"})
    for (const char* truncate : {"right", "drop"}) {
      spec_.data_truncate = truncate;
      const RunInputs inputs = load(rows + last, rows + last);
      const bool drop = spec_.data_truncate == "drop";
      for (const Dataset* data : {&inputs.train, &inputs.held_out}) {
        EXPECT_EQ(data->samples.size(), drop ? 99 : 100);
        EXPECT_EQ(data->report.dropped, drop ? 1 : 0);
        EXPECT_EQ(data->report.cut, drop ? 0 : 1);
        EXPECT_LE(data->report.longest, 128);
        for (std::int64_t i = 0; i < data->samples.size(); ++i) ASSERT_LE(data->samples.length(i), 128);
      }
    }
}

TEST_F(Inputs, LimitAboveTheModelsPositionsIsRefused) {
  const ModelConfig config = read_model_config(model_);
  spec_.data_max_tokens = config.max_positions;
  EXPECT_EQ(load(row(5, "r")).train.samples.size(), 1);
  spec_.data_max_tokens = config.max_positions + 1;
  EXPECT_NE(refusal(ErrorKind::kUsage, row(5, "r")).find("the model takes at most"), std::string::npos);
}

// Fewer samples than a global batch, or than there are ranks: still an update an epoch, with all of them.
TEST_F(Inputs, FewerThanABatchMakeOneUpdate) {
  for (const std::int64_t n : {1, 3}) {
    std::string rows;
    for (std::int64_t i = 0; i < n; ++i) rows += row(5, "r");
    const RunInputs inputs = load(rows);
    RunSpec spec = spec_;
    spec.batch_global = 8;
    resolve(spec, inputs.train.samples.size());
    EXPECT_EQ(spec.train_updates, 1);
    EXPECT_EQ(BatchOrder(spec.seed_order, n, spec.batch_global).batch(1).size(), static_cast<std::size_t>(n));
  }
  EXPECT_NE(refusal(ErrorKind::kInput, "\n\n").find("no sample left (0 rows, 2 blank lines"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
