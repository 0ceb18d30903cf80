#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "io/text/chat_template.hpp"
#include "src/base/error.hpp"
#include "src/cli/generate_command.hpp"
#include "src/cli/init_model_command.hpp"
#include "src/cli/tokenize_command.hpp"
#include "src/model/adapter_folder.hpp"
#include "src/model/loaded_model.hpp"
#include "src/model/transformer.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/support/tiny_adapter.hpp"

namespace tandem {
namespace {

using nlohmann::json;

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    InitModelOptions init;
    init.out = folder_ / "model";
    init.hidden = 48, init.layers = 2, init.heads = 4, init.kv_heads = 2, init.head_dim = 12,
    init.intermediate = 64;
    std::ostringstream said;
    init_model_command(init, said);
    support::make_tiny_adapter(folder_ / "adapter", read_model_config(folder_ / "model"), 4, 8.0);
    options_.model = folder_ / "model";
    options_.max_tokens = 12;
    options_.threads = 1;
    options_.json = true;
  }
  std::vector<json> answers(const std::string& rows = "") {
    std::istringstream in(rows);
    std::ostringstream out, log;
    EXPECT_EQ(generate_command(options_, in, out, log), 0);
    log_ = log.str();
    std::vector<json> list;
    std::istringstream lines(out.str());
    for (std::string line; std::getline(lines, line);) list.push_back(json::parse(line));
    return list;
  }
  std::string refusal(const std::string& rows, ErrorKind kind = ErrorKind::kInput) {
    try {
      answers(rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }
  std::vector<std::int32_t> ids_of(const std::string& text) {
    std::istringstream in(json(text).dump());
    std::ostringstream out;
    tokenize_command(options_.model, in, out);
    return json::parse(out.str()).get<std::vector<std::int32_t>>();
  }

  support::TempFolder folder_;
  GenerateOptions options_;
  std::string log_;
};

TEST_F(Generate, AsksWithTheModelsOwnGenerationPrompt) {
  options_.prompt = "Is it so?";
  EXPECT_EQ(answers().at(0)["prompt_ids"],
            ids_of("<|im_start|>user\nIs it so?<|im_end|>\n<|im_start|>assistant\n"));
  options_.system = "Answer.";
  options_.thinking = false;
  EXPECT_EQ(answers().at(0)["prompt_ids"], ids_of("<|im_start|>system\nAnswer.<|im_end|>\n<|im_start|>"
                                                  "user\nIs it so?<|im_end|>\n<|im_start|>assistant\n"
                                                  "<think>\n\n</think>\n\n"));
}

// Each id is the largest logit of a forward pass over all tokens before it.
TEST_F(Generate, TakesTheLargestLogitAtEveryStepWithAndWithoutAdapter) {
  const LoadedModel model = load_model(options_.model);
  const LoadedAdapter adapter = load_adapter(folder_ / "adapter", model.config);
  const CpuContext ctx(1);
  options_.prompt = "Why?";
  std::vector<json> both;
  for (const bool adapted : {false, true}) {
    options_.adapter = adapted ? folder_ / "adapter" : std::filesystem::path();
    const json answer = answers().at(0);
    both.push_back(answer["ids"]);
    EXPECT_EQ(log_, adapted ? "adapter: rank 4, alpha 8, 14 of 14 modules active\n" : "");
    std::vector<std::int32_t> ids = answer["prompt_ids"];
    ASSERT_EQ(answer["ids"].size(), 12u);
    for (const std::int32_t id : answer["ids"]) {
      const auto t = static_cast<std::int64_t>(ids.size()), v = model.config.vocab_size;
      Transformer transformer(ctx, model.config, model.weights.views(), adapter.layout, {0, 0, t, t, t});
      transformer.allocate();
      MicroBatch batch;
      batch.all_positions(ids);
      std::vector<float> logits(static_cast<std::size_t>(t * v));
      transformer.logits(adapted ? std::span<const float>(adapter.values) : std::span<const float>(), batch,
                         Matrix(logits.data(), t, v));
      const auto last = logits.end() - v;
      ASSERT_EQ(std::max_element(last, logits.end()) - last, id);
      ids.push_back(id);
    }
  }
  EXPECT_NE(both[0], both[1]);
}

TEST_F(Generate, AnswersRowsLikeTrainingReadsThemWithoutTheirAnswers) {
  const auto list = answers(
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Why?\"},{\"role\":\"assistant\",\"content\":\"Because."
      "\"}]}\n\n"
      "{\"prompt\":\"Why?\",\"completion\":\"Because.\"}\n"
      "{\"ids\":[1,2,3],\"targets\":[0,1,1]}\n"
      "{\"prompt\":\"Why?\"}\n"
      "{\"instruction\":\"Why?\"}\n");
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[3]["prompt_ids"], list[0]["prompt_ids"]);
  EXPECT_EQ(list[4]["prompt_ids"], list[0]["prompt_ids"]);
  EXPECT_EQ(list[0]["prompt_ids"], list[1]["prompt_ids"]);
  EXPECT_EQ(list[0]["ids"], list[1]["ids"]);
  EXPECT_EQ(list[1]["line"], 3);
  EXPECT_EQ(list[2]["prompt_ids"], json({1, 2, 3}));
  // A second process and a longer conversation before it give the same.
  EXPECT_EQ(answers("{\"ids\":[1,2,3]}\n").at(0)["ids"], list[2]["ids"]);
}

TEST_F(Generate, StopsAtTheEndTokensOfGenerationConfig) {
  options_.prompt = "Why?";
  const json free = answers().at(0);
  EXPECT_EQ(free["stopped"], "length");
  const std::int32_t third = free["ids"][2];
  support::write_text(options_.model / "generation_config.json", json{{"eos_token_id", {third, 281}}}.dump());
  const json stopped = answers().at(0);
  EXPECT_EQ(stopped["stopped"], "end");
  // Up to the first time that this id comes.
  std::vector<std::int32_t> want;
  for (const std::int32_t id : free["ids"]) {
    if (id == third) break;
    want.push_back(id);
  }
  EXPECT_EQ(stopped["ids"], json(want));
  support::write_text(options_.model / "generation_config.json", "{\"eos_token_id\": -1}");
  EXPECT_NE(refusal("").find("generation_config.json: eos_token_id = -1 is no token id"), std::string::npos);
}

TEST_F(Generate, RefusesInOneLineWithItsPlace) {
  EXPECT_EQ(refusal("{\"ids\":[1]}\n{\"ids\":[99999]}"),
            "standard input line 2: token id 99999, but the model's vocabulary has 320 entries");
  EXPECT_EQ(refusal("{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}"),
            "standard input line 1: the conversation has no turn to answer");
  EXPECT_NE(refusal("{\"text\":\"x\"}").find("standard input line 1: a row has either messages, "),
            std::string::npos);
  EXPECT_EQ(refusal("{\"ids\":[]}"), "standard input line 1: ids is empty");
  options_.max_tokens = 0;
  EXPECT_EQ(refusal("", ErrorKind::kUsage), "generate: --max-tokens 0: must be at least 1");
  options_.max_tokens = 1000000;
  std::string ids = "1";
  for (std::int64_t i = 1; i < read_model_config(options_.model).max_positions; ++i) ids += ",1";
  EXPECT_NE(refusal("{\"ids\":[" + ids + "]}").find("(max_position_embeddings)"), std::string::npos);
}

}  // namespace
}  // namespace tandem
