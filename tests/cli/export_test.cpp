// `tandem export` on what a short run left, and a run that starts from what it exported.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "io/adapter.hpp"
#include "io/text/utf8.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/sha256.hpp"
#include "src/model/adapter_folder.hpp"
#include "tests/support/data.hpp"
#include "tests/support/edit_tensors.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::read_text;

class Export : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new support::TempFolder;
    fs::create_symlink(TANDEM_SOURCE_DIR "/configs", *folder_ / "configs");
    ASSERT_EQ(run("tandem init-model --preset tiny --seed 1 --out model").code, 0);
    const auto trained = run(train("--run.out run"));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string train(const std::string& more) {
    return "tandem train --config configs/tiny.cfg " +
           std::string(more.find("--model ") == std::string::npos ? "--model model " : "") +
           "--train.updates 2 --threads 1 " + more;
  }
  static support::ShellResult run(const std::string& line) {
    return support::run_shell(
        *folder_, "export OMP_WAIT_POLICY=passive\ntandem() { \"" TANDEM_PROGRAM "\" \"$@\"; }\n" + line);
  }
  static void expect_refusal(const std::string& line, int code, const std::string& part) {
    const auto result = run(line);
    EXPECT_EQ(result.code, code) << line;
    EXPECT_EQ(result.out, "") << line;
    EXPECT_EQ(support::lines_of(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
  static fs::path path(const std::string& name) { return *folder_ / name; }

  static support::TempFolder* folder_;
};
support::TempFolder* Export::folder_ = nullptr;

TEST_F(Export, AnAdapterHasTheRunsValuesAndACardThatSaysWhereItIsFrom) {
  const auto result = run("tandem export --run run --name org/tiny --out adapter-a");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("14 of 14 modules active"), std::string::npos) << result.out;
  EXPECT_EQ(read_text(path("adapter-a/adapter_model.safetensors")),
            read_text(path("run/adapter/adapter_model.safetensors")));
  auto config = support::read_json(path("adapter-a/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], "org/tiny");
  config["base_model_name_or_path"] = "model";
  EXPECT_EQ(config, support::read_json(path("run/adapter/adapter_config.json")));
  const std::string card = read_text(path("adapter-a/README.md"));
  for (const std::string& part :
       {std::string("---\nbase_model: \"org/tiny\"\nlibrary_name: peft\n"),
        sha256_hex(read_text(path("run/spec.txt"))), sha256_file(path("configs/tiny.jsonl")),
        sha256_file(path("configs/tiny_held_out.jsonl")),
        std::string("research artefact, not a medical device"), std::string("after update 2 (1732 tokens)"),
        read_text(path("run/spec.txt"))})
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
}

TEST_F(Export, AMergedModelIsAWholeFolder) {
  const auto result = run("tandem export --run run --merge --dtype BF16 --threads 2 --out merged");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("14 of 24 tensors merged; largest relative rounding error of an element 0.00"),
            std::string::npos)
      << result.out;
  EXPECT_EQ(read_text(path("merged/tokenizer.json")), read_text(path("model/tokenizer.json")));
  EXPECT_EQ(support::read_json(path("merged/config.json"))["torch_dtype"], "bfloat16");
  const std::string card = read_text(path("merged/README.md"));
  EXPECT_NE(card.find("library_name: transformers"), std::string::npos);
  EXPECT_NE(card.find("not a medical device"), std::string::npos);
  // It is a model like any other.
  EXPECT_EQ(
      run("tandem train --config configs/tiny.cfg --model merged --train.updates 1 --run.out on-merged").code,
      0);
}

TEST_F(Export, SaysWhereRoundingTakesTheChange) {
  ASSERT_EQ(run("tandem init-model --preset tiny --dtype BF16 --out coarse && " +
                train("--model coarse --optim.lr 1e-5 --run.out faint"))
                .code,
            0);
  const auto rounded = run("tandem export --run faint --merge --out faint-bf16"),
             kept = run("tandem export --run faint --merge --dtype F32 --out faint-f32");
  EXPECT_EQ(rounded.code, 0) << rounded.err;
  EXPECT_NE(rounded.out.find("rounding has taken much"), std::string::npos) << rounded.out;
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_EQ(kept.out.find("rounding has taken much"), std::string::npos) << kept.out;
}

TEST_F(Export, NothingIsOverwrittenAndNothingHalfWritten) {
  fs::create_directory(path("full"));
  support::write_text(path("full/x"), "x");
  expect_refusal("tandem export --run run --out full", 3, "exists and is not an empty folder");
  expect_refusal("tandem export --run run --adapter run/adapter --out new", 2,
                 "either --run RUN_FOLDER or --adapter DIR");
  expect_refusal("tandem export --out new", 2, "either --run RUN_FOLDER or --adapter DIR");
  expect_refusal("tandem export --run run --dtype F32 --out new", 2, "--dtype belongs to --merge");
  expect_refusal("tandem export --run run --merge --dtype F8 --out new", 2, "--dtype F8 is not known");
  expect_refusal("tandem export --run model --out new", 3, "holds no adapter yet");
  expect_refusal("tandem export --run nowhere --out new", 3, "is no run's folder");
  expect_refusal("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 tandem export --run run --out new", 2,
                 "start it without mpirun");
  ASSERT_EQ(run("tandem init-model --preset tiny --seed 2 --out other").code, 0);
  expect_refusal("tandem export --run run --model other --out new", 3, "is not the model of the run");
  expect_refusal("cp -r run moved; rm moved/spec.txt; tandem export --run moved --out new", 3,
                 "moved/spec.txt: cannot be opened");
  expect_refusal(
      "cp -r run/adapter named; sed -i 's/\"model\"/\"gone\"/' named/adapter_config.json; tandem export "
      "--adapter named --out new",
      2, "give --model DIR");
  EXPECT_FALSE(fs::exists(path("new")));
  EXPECT_FALSE(support::has_temporaries(path("new").parent_path()));
}

TEST_F(Export, ARunStartsFromAnExportedAdapter) {
  ASSERT_EQ(run("tandem export --adapter run/adapter --out adapter-b").code, 0);
  const auto result = run(train("--lora.init adapter-b --run.out again"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("14 modules, from adapter-b; "), std::string::npos) << result.err;
  const Trajectory first = read_trajectory(path("run/native.h5")),
                   second = read_trajectory(path("again/native.h5"));
  const LoadedAdapter adapter = load_adapter(path("adapter-b"), read_model_config(path("model")));
  const std::string digest = adapter_digest(adapter.tensors());
  EXPECT_EQ(first.evals->adapter_digest.back(), digest);
  EXPECT_EQ(second.evals->adapter_digest.front(), digest);
  EXPECT_EQ(second.evals->nll_sum.front(), first.evals->nll_sum.back()) << "the same adapter, the same bits";
  EXPECT_NE(second.evals->adapter_digest.back(), digest);
  EXPECT_NE(read_text(path("again/spec.txt")).find("\nlora.init = \""), std::string::npos);
}

TEST_F(Export, AnAdapterThatDoesNotFitTheRunIsRefused) {
  ASSERT_EQ(run("tandem export --adapter run/adapter --out adapter-c").code, 0);
  const auto refused = [&](const std::string& options, const std::string& part) {
    const auto result = run(train("--lora.init adapter-c --run.out refused " + options));
    EXPECT_EQ(result.code, 3) << options << result.err;
    const auto lines = support::lines_of(result.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines.back().find("lora.init: adapter-c"), std::string::npos) << lines.back();
    EXPECT_NE(lines.back().find(part), std::string::npos) << lines.back();
    EXPECT_FALSE(fs::exists(path("refused")));
  };
  refused("--lora.rank 4", "the adapter has r = 8, the run lora.rank = 4");
  refused("--lora.alpha 8", "the adapter has lora_alpha = 16, the run lora.alpha = 8");
  refused("--lora.rslora", "the adapter has use_rslora = false, the run lora.rslora = true");
  refused("--lora.targets q,v", "belongs to no module of this run");
  support::edit_tensors(path("adapter-c/adapter_model.safetensors"),
                        [](auto& tensors) { tensors.begin()->second.values[1] = std::nanf(""); });
  refused(
      "",
      "/adapter_model.safetensors: tensor \"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight\": "
      "element [0, 1] is NaN");
  support::write_text(path("adapter-c/adapter_model.safetensors"), "x");
  refused("", "adapter_model.safetensors");
}

// Wherever an adapter is read, the line names its file, the tensor and the element.
TEST_F(Export, AnAdapterWithNanIsRefusedByEveryCommand) {
  fs::copy(path("run/adapter"), path("adapter-nan"));
  support::edit_tensors(path("adapter-nan/adapter_model.safetensors"),
                        [](auto& tensors) { tensors.rbegin()->second.values[9] = std::nanf(""); });
  const std::string part =
      "adapter-nan/adapter_model.safetensors: tensor "
      "\"base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight\": element [1, 1] is NaN";
  expect_refusal("tandem export --adapter adapter-nan --out new", 3, part);
  expect_refusal("tandem export --adapter adapter-nan --merge --out new", 3, part);
  expect_refusal("tandem eval --model model --adapter adapter-nan --data configs/tiny_held_out.jsonl", 3,
                 part);
  expect_refusal("tandem generate --model model --adapter adapter-nan \"Why?\"", 3, part);
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(Export, AModelThatIsNotWholeIsNotMerged) {
  fs::copy(path("model"), path("model-nan"));
  support::edit_tensors(path("model-nan/model.safetensors"),
                        [](auto& tensors) { tensors["model.norm.weight"].values[3] = std::nanf(""); });
  for (const char* command : {"export --adapter run/adapter --merge --out new --model model-nan",
                              "eval --data configs/tiny_held_out.jsonl --model model-nan"})
    expect_refusal(std::string("tandem ") + command, 3,
                   "model-nan/model.safetensors: tensor \"model.norm.weight\": element [3] is NaN");
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(Export, APatternOfTargetModulesIsToldOnce) {
  fs::copy(path("run/adapter"), path("adapter-pattern"));
  auto config = support::read_json(path("adapter-pattern/adapter_config.json"));
  config["target_modules"] = ".*_proj";
  support::write_text(path("adapter-pattern/adapter_config.json"), config.dump());
  for (const std::string& line :
       {std::string("tandem export --adapter adapter-pattern --out from-pattern"),
        std::string("tandem eval --model model --adapter adapter-pattern --data configs/tiny_held_out.jsonl"),
        std::string("tandem generate --model model --adapter adapter-pattern --max-tokens 1 \"Why?\""),
        train("--lora.init adapter-pattern --run.out from-pattern-run")}) {
    const auto result = run(line);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string part = "target_modules is the pattern \".*_proj\", which was not compared";
    const auto at = result.err.find(part);
    ASSERT_NE(at, std::string::npos) << line << result.err;
    EXPECT_EQ(result.err.find(part, at + 1), std::string::npos) << result.err;
  }
  EXPECT_EQ(support::read_json(path("from-pattern/adapter_config.json"))["target_modules"].size(), 7u);
}

// Of a path, bytes are what counts; JSON and Markdown get replacements.
TEST_F(Export, AModelsPathThatIsNoUtf8EndsNoRun) {
  const std::string name = "mod\xe9l", replaced = "mod\xEF\xBF\xBDl";
  fs::copy(path("model"), path(name));
  const auto trained = run(train("--model $'mod\\xe9l' --run.out latin"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(support::read_json(path("latin/adapter/adapter_config.json"))["base_model_name_or_path"],
            replaced);
  EXPECT_EQ(read_trajectory(path("latin/native.h5")).provenance.at("path.model.path"), path(name).string())
      << "where it lies, for tandem audit";
  EXPECT_EQ(run("tandem inspect --validate latin/native.h5").code, 0);
  for (const char* how : {"", "--merge "}) {
    const std::string out = *how ? "latin-merged" : "latin-adapter";
    const auto result =
        run(std::string("tandem export --run latin --model $'mod\\xe9l' ") + how + "--out " + out);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string card = read_text(path(out + "/README.md"));
    EXPECT_EQ(first_invalid_utf8(card), std::nullopt);
    EXPECT_NE(card.find(replaced), std::string::npos) << card;
  }
  expect_refusal("tandem export --run run --name $'a\\xff' --out new", 2, "--name is not valid UTF-8");
}

TEST_F(Export, ARunsAdapterMustBeOneThatTheRunRecorded) {
  const std::string digest = read_trajectory(path("run/native.h5")).evals->adapter_digest.back();
  ASSERT_EQ(run(train("--seed 9 --run.out stranger")).code, 0);
  const auto mixed = [&](const std::string& made_by) {
    const auto made = run("rm -rf mixed && cp -r run mixed && " + made_by);
    EXPECT_EQ(made.code, 0) << made.err;
  };
  const std::string command = "tandem export --run mixed --out new";
  mixed("rm -r mixed/adapter && cp -r stranger/adapter mixed/adapter");
  expect_refusal(command, 3,
                 "mixed/adapter: is not the run's adapter: its digest is " +
                     read_trajectory(path("stranger/native.h5")).evals->adapter_digest.back() +
                     ", mixed/native.h5 recorded " + digest + " at last; --adapter instead");
  mixed("sed -i 's/\"lora_alpha\": 16/\"lora_alpha\": 32/' mixed/adapter/adapter_config.json");
  expect_refusal(command, 3, "is not the run's adapter: lora.alpha = 32.0 here, 16.0 in spec.txt");
  mixed("rm mixed/native.h5");
  expect_refusal(command, 3, "; --adapter instead of --run");
  mixed("echo x > mixed/native.h5");
  expect_refusal(command, 3, "; --adapter instead of --run");
  EXPECT_EQ(run("tandem export --adapter mixed/adapter --out of-mixed").code, 0);
}

// Without held-out data nothing is evaluated; the last update's checksum names the adapter.
TEST_F(Export, ARunWithoutEvaluationsKnowsItsAdapterToo) {
  ASSERT_EQ(run(train("--data.held_out none --run.out unevaluated")).code, 0);
  const auto result = run("tandem export --run unevaluated --out of-unevaluated");
  EXPECT_EQ(result.code, 0) << result.err;
  support::edit_tensors(path("unevaluated/adapter/adapter_model.safetensors"),
                        [](auto& tensors) { tensors.begin()->second.values[0] += 1.0f; });
  expect_refusal("tandem export --run unevaluated --out new", 3,
                 "is not the run's adapter: its digest is (checksum) ");
}

}  // namespace
}  // namespace tandem
