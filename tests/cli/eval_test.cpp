// `tandem eval` beside the run that made the adapter.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "io/trajectory_reader.hpp"
#include "tests/support/data.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Eval : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new support::TempFolder;
    fs::create_symlink(TANDEM_SOURCE_DIR "/configs", *folder_ / "configs");
    ASSERT_EQ(run("tandem init-model --preset tiny --seed 1 --out model").code, 0);
    const auto trained = run(
        "tandem train --config configs/tiny.cfg --model model --train.updates 2 --threads 2 --run.out run");
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static support::ShellResult run(const std::string& line) {
    return support::run_shell(
        *folder_, "export OMP_WAIT_POLICY=passive\ntandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n" + line);
  }
  static json eval(const std::string& more) {
    const auto result = run("tandem eval --model model --data.max_tokens 256 --json " + more);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out) : json();
  }
  static std::vector<json> rows(const std::string& name) {
    std::vector<json> list;
    for (const std::string& line : support::lines_of(support::read_text(*folder_ / name)))
      list.push_back(json::parse(line));
    return list;
  }

  static support::TempFolder* folder_;
};
support::TempFolder* Eval::folder_ = nullptr;

TEST_F(Eval, GivesTheBitsOfTheRunsOwnEvaluations) {
  const std::string data =
      "--data configs/tiny_held_out.jsonl --batch.micro 2 --adapter run/adapter --threads 1";
  const json result = eval(data + " --per-token tokens.jsonl");
  const Trajectory trajectory = read_trajectory(*folder_ / "run/native.h5");
  EXPECT_EQ(result["base"]["nll_sum"], trajectory.evals->nll_sum.front());
  EXPECT_EQ(result["adapter"]["nll_sum"], trajectory.evals->nll_sum.back());
  EXPECT_EQ(result["base"]["loss"], trajectory.evals->loss_adapter_off.back());
  EXPECT_EQ(result["tokens"], trajectory.evals->n_tokens.back());
  EXPECT_NE(result["base"]["nll_sum"], result["adapter"]["nll_sum"]);
  EXPECT_EQ(result["adapter_settings"]["active_modules"], 14);
  EXPECT_DOUBLE_EQ(result["adapter"]["perplexity"], std::exp(result["adapter"]["loss"].get<double>()));
  double sum = 0.0;
  std::int64_t n = 0;
  for (const json& row : rows("tokens.jsonl")) {
    EXPECT_EQ(row["targets"].size(), row["adapter"].size());
    for (const json& value : row["adapter"]) sum += value.get<double>(), ++n;
  }
  EXPECT_EQ(n, result["tokens"]);
  EXPECT_NEAR(sum, result["adapter"]["nll_sum"].get<double>(), 1e-9 * sum);
  EXPECT_EQ(eval(data), result) << "a second time";
  EXPECT_EQ(eval("--data configs/tiny_held_out.jsonl --batch.micro 2 --threads 4")["base"], result["base"]);
}

// Dropout belongs to training, whatever the adapter was trained with.
TEST_F(Eval, KnowsNoDropout) {
  ASSERT_EQ(run("cp -r run/adapter dropping; sed -i 's/\"lora_dropout\": [0-9.]*/\"lora_dropout\": 0.5/' "
                "dropping/adapter_config.json; "
                "grep -q '\"lora_dropout\": 0.5' dropping/adapter_config.json")
                .code,
            0);
  const std::string data = "--data configs/tiny_held_out.jsonl --adapter ";
  EXPECT_EQ(eval(data + "dropping")["adapter"], eval(data + "run/adapter")["adapter"]);
}

TEST_F(Eval, ExplainsItselfToPeople) {
  const auto result =
      run("tandem eval --model model --data configs/tiny_held_out.jsonl --data.max_tokens 256 --adapter "
          "run/adapter");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto lines = support::lines_of(result.out);
  ASSERT_EQ(lines.size(), 6u) << result.out;
  EXPECT_EQ(lines[0], "adapter: rank 8, alpha 16, 14 of 14 modules active");
  EXPECT_EQ(lines[1], "24 samples, 1732 scored tokens");
  EXPECT_TRUE(lines[3].starts_with("base      6.358675 ")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("adapter   ")) << lines[4];
}

TEST_F(Eval, ChoicesPreferTheLeastNll) {
  support::write_text(
      *folder_ / "choices.jsonl",
      "{\"question\":\"What do bees make?\",\"choices\":[\"a house\",\"honey\",\"ink\"],\"answer\":1}\n"
      "{\"question\":\"Is ice cold?\",\"choices\":[\"yes\",\"no\"],\"answer\":0}\n"
      "{\"question\":\"Is fire cold?\",\"choices\":[\"no\",\"none\"],\"answer\":0}\n");
  const json result = eval("--data choices.jsonl --choices --adapter run/adapter --per-token options.jsonl");
  EXPECT_EQ(result["questions"], 3);
  EXPECT_EQ(result["options"], 7);
  EXPECT_NEAR(result["chance"].get<double>(), (1.0 / 3 + 0.5 + 0.5) / 3, 1e-15);
  const auto questions = rows("options.jsonl");
  ASSERT_EQ(questions.size(), 3u);
  for (const char* side : {"base", "adapter"})
    for (const bool per_token : {false, true}) {
      std::int64_t right = 0;
      for (const json& question : questions) {
        std::vector<double> nll;
        for (const json& choice : question["choices"]) {
          double sum = 0.0;
          for (const json& value : choice[side]) sum += value.get<double>();
          nll.push_back(per_token ? sum / static_cast<double>(choice[side].size()) : sum);
        }
        const auto best = std::min_element(nll.begin(), nll.end()) - nll.begin();
        EXPECT_EQ(question["preferred"][per_token ? "per_token" : "sum"][side], best);
        right += best == question["answer"];
      }
      EXPECT_EQ(result[per_token ? "per_token" : "sum"][side]["right"], right);
    }
  EXPECT_EQ(questions[0]["choices"][1]["targets"].size(), std::string("honey").size())
      << "bytes, without the end of the turn";
}

TEST_F(Eval, RefusesInOneLine) {
  const auto refused = [](const std::string& line, int code, const std::string& part) {
    const auto result = run("tandem eval --model model " + line);
    EXPECT_EQ(result.code, code) << line;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(support::lines_of(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  support::write_text(*folder_ / "blank.jsonl", "{\"ids\":[1,2],\"targets\":[1,0]}\n");
  refused("--data blank.jsonl --data.max_tokens 8 2>err2; code=$?; tail -1 err2 >&2; (exit $code)", 3,
          "no sample has a token to score");
  refused("--data nowhere.jsonl --data.max_tokens 8", 3, "nowhere.jsonl");
  refused("--data blank.jsonl --adapter model --data.max_tokens 8", 3,
          "adapter_config.json: cannot be opened");
  refused("--data blank.jsonl --data.max_tokens 100000", 2, "the model takes at most");
  refused("--data blank.jsonl --choices --data.max_tokens 8", 3,
          "blank.jsonl line 1: a question with choices is a text");
  support::write_text(*folder_ / "equal.jsonl",
                      "{\"question\":\"Is fire cold?\",\"choices\":[\"no\",\"no\"],\"answer\":0}\n");
  refused("--data equal.jsonl --choices --data.max_tokens 256", 3,
          "equal.jsonl line 1: choices[0] and choices[1] are the same text");
  ASSERT_EQ(run("cp -r run/adapter renamed; sed -i 's/self_attn.q_proj/self_attn.Q_proj/' "
                "renamed/adapter_model.safetensors")
                .code,
            0);
  refused("--data blank.jsonl --adapter renamed --data.max_tokens 8", 3, "Q_proj");
}

}  // namespace
}  // namespace tandem
