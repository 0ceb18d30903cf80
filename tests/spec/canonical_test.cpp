#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/random.hpp"
#include "src/spec/digests.hpp"
#include "src/spec/run_spec.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TEST(PythonRepr, FixedValues) {
  // Printed by CPython 3.11's repr.
  const std::vector<std::pair<double, std::string>> values = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-1.0, "-1.0"},
      {0.1, "0.1"},
      {0.0002, "0.0002"},
      {0.0001, "0.0001"},
      {0.00009999, "9.999e-05"},
      {2e-05, "2e-05"},
      {1e-08, "1e-08"},
      {1.5e-07, "1.5e-07"},
      {0.999, "0.999"},
      {32.0, "32.0"},
      {12.5, "12.5"},
      {100000.0, "100000.0"},
      {1e15, "1000000000000000.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1.2345e16, "1.2345e+16"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {1e22, "1e+22"},
      {1e23, "1e+23"},
      {1e100, "1e+100"},
      {1.0 / 3.0, "0.3333333333333333"},
      {0.1 + 0.2, "0.30000000000000004"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {9007199254740993.0, "9007199254740992.0"},
  };
  for (const auto& [value, text] : values) EXPECT_EQ(python_repr(value), text);
}

TEST(PythonRepr, EveryBitPatternReadsBack) {
  const RandomStream stream(1, "repr");
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const auto value = std::bit_cast<double>(stream.draw(i));
    if (value != value) continue;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(std::strtod(python_repr(value).c_str(), nullptr)), stream.draw(i));
  }
}

TEST(PythonRepr, AgreesWithPythonOnThousandsOfValues) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  // Any bit pattern, magnitudes near the changes of notation, and short decimals.
  std::vector<double> values;
  const RandomStream stream(2, "repr");
  for (std::uint64_t i = 0; i < 6000; ++i) values.push_back(std::bit_cast<double>(stream.draw(i)));
  for (std::uint64_t i = 0; i < 6000; ++i) {
    const int exponent = static_cast<int>(stream.draw(10000 + i) % 24) - 7;
    values.push_back(std::strtod(
        (std::to_string(stream.draw(20000 + i) % 1000) + "e" + std::to_string(exponent)).c_str(), nullptr));
    values.push_back(stream.unit(30000 + i) * std::pow(10.0, exponent));
  }
  for (int power = -330; power < 310; ++power)
    values.push_back(std::strtod(("1e" + std::to_string(power)).c_str(), nullptr));
  for (int power = -1074; power < 1024; ++power) values.push_back(std::ldexp(1.0, power));

  const support::TempFolder folder;
  const fs::path file = folder / "values.txt";
  std::ofstream out(file);
  for (const double value : values)
    out << std::bit_cast<std::uint64_t>(value) << " " << python_repr(value) << "\n";
  out.close();
  const std::string check =
      "python3 -c \"import struct, sys\n"
      "rows = [line.split() for line in open(sys.argv[1])]\n"
      "bad = [r for r in rows if repr(struct.unpack('<d', struct.pack('<Q', int(r[0])))[0]) != r[1]]\n"
      "print(len(rows), 'values,', len(bad), 'differ', bad[:3])\n"
      "sys.exit(bool(bad) or len(rows) < 20000)\" '" +
      file.string() + "'";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

RunSpec digested() {
  RunSpec spec;
  spec.model = {"some/folder", std::string(64, 'a')};
  spec.train = {"rows.jsonl", std::string(64, 'b')};
  return spec;
}

// The whole text, so that a key added, renamed or written otherwise is seen here.
TEST(CanonicalText, OfDefaultsIsThis) {
  RunSpec spec = digested();
  resolve(spec, 160);
  EXPECT_EQ(canonical_text(spec),
            "batch.global = 16\n"
            "data.held_out = none\n"
            "data.max_tokens = 1024\n"
            "data.special_in_text = \"encode\"\n"
            "data.targets = \"all\"\n"
            "data.template = \"auto\"\n"
            "data.train = \"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"\n"
            "data.truncate = \"right\"\n"
            "eval.every = 1\n"
            "lora.alpha = 32.0\n"
            "lora.dropout = 0.0\n"
            "lora.init = none\n"
            "lora.rank = 16\n"
            "lora.rslora = false\n"
            "lora.targets = \"q,k,v,o,gate,up,down\"\n"
            "model.path = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n"
            "optim.beta1 = 0.9\n"
            "optim.beta2 = 0.999\n"
            "optim.clip = 1.0\n"
            "optim.eps = 1e-08\n"
            "optim.lr = 0.0002\n"
            "optim.lr_min = 0.0\n"
            "optim.schedule = \"cosine\"\n"
            "optim.warmup = 0\n"
            "optim.weight_decay = 0.0\n"
            "seed.adapter = 0\n"
            "seed.dropout = 0\n"
            "seed.order = 0\n"
            "train.updates = 10\n");
  // sha256sum of the text above.
  EXPECT_EQ(spec_digest(spec), "230c288094ad308ee91ccd5ea769b74e97dbe8a969ad85f62f8b30d78c57b652");
}

TEST(CanonicalText, OfAnExecutionNamesTheRunsFacts) {
  Execution execution;
  execution.ranks = 2;
  execution.device = "cpu";
  EXPECT_EQ(canonical_text(execution),
            "batch.deal = \"least_loaded\"\n"
            "batch.micro = 4\n"
            "build = none\n"
            "device = \"cpu\"\n"
            "gpu = \"auto\"\n"
            "instruction_set = none\n"
            "memory.limit = 0.0\n"
            "mirror.every = 0\n"
            "mirror.mode = \"audit\"\n"
            "mirror.on_mismatch = \"record\"\n"
            "mirror.rank = -1\n"
            "mirror.scope = \"batch\"\n"
            "mirror.threads = 1\n"
            "mirror.when_behind = \"wait\"\n"
            "observe.every = 10\n"
            "observe.probe = 512\n"
            "precision = \"f32\"\n"
            "ranks = 2\n"
            "snapshot.every = 0\n"
            "snapshot.what = \"adapter,m,v,gradient\"\n"
            "threads = 0\n");
}

TEST(CanonicalText, IsRefusedBeforeDigestsAndResolution) {
  RunSpec spec = digested();
  EXPECT_THROW(canonical_text(spec), Error);
  resolve(spec, 10);
  EXPECT_NO_THROW(canonical_text(spec));
  spec.held_out.path = "rows.jsonl";
  EXPECT_THROW(canonical_text(spec), Error);
}

TEST(CanonicalText, EpochsAndUpdatesThatMeanTheSameGiveOneText) {
  RunSpec by_epochs = digested(), by_updates = digested();
  by_epochs.train_epochs = 3;
  by_updates.train_updates = 30;
  resolve(by_epochs, 153);  // ceil(153 / 16) = 10
  resolve(by_updates, 153);
  EXPECT_EQ(canonical_text(by_epochs), canonical_text(by_updates));
  EXPECT_EQ(by_epochs.train_updates, 30);
}

TEST(Resolve, WarmUpIsThreePercentRoundedAndBelowTheRun) {
  const auto warmup_of = [](std::int64_t updates) {
    RunSpec spec;
    spec.train_updates = updates;
    resolve(spec, 5);
    return spec.optim_warmup;
  };
  EXPECT_EQ(warmup_of(1), 0);
  EXPECT_EQ(warmup_of(16), 0);
  EXPECT_EQ(warmup_of(17), 1);
  EXPECT_EQ(warmup_of(50), 2);  // 1.5 rounds up
  EXPECT_EQ(warmup_of(10536), 316);
}

TEST(Resolve, FortyTwoEvaluationsAtMost) {
  const auto every_of = [](std::int64_t updates) {
    RunSpec spec;
    spec.train_updates = updates;
    resolve(spec, 5);
    return spec.eval_every;
  };
  EXPECT_EQ(every_of(1), 1);
  EXPECT_EQ(every_of(42), 1);
  EXPECT_EQ(every_of(43), 2);
  EXPECT_EQ(every_of(10536), 251);
}

TEST(Resolve, RefusesWhatDoesNotFit) {
  RunSpec spec;
  EXPECT_THROW(resolve(spec, 0), Error);
  spec.train_updates = 5;
  spec.optim_warmup = 5;
  try {
    resolve(spec, 10);
    FAIL() << "a warm-up as long as the run was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_STREQ(error.what(), "optim.warmup = 5: must be below the run's 5 updates (train.updates)");
  }
  RunSpec endless;
  endless.batch_global = 1;
  endless.train_epochs = 2147483647;
  EXPECT_THROW(resolve(endless, 2), Error);
}

TEST(Resolve, TwiceIsOnce) {
  RunSpec spec;
  resolve(spec, 1000);
  const std::int64_t updates = spec.train_updates;
  resolve(spec, 7);
  EXPECT_EQ(spec.train_updates, updates);
}

TEST(LoraScale, IsAlphaOverRankOrItsRoot) {
  RunSpec spec;
  spec.lora_rank = 8;
  spec.lora_alpha = 12;
  EXPECT_EQ(spec.lora_scale(), 1.5);
  spec.lora_rank = 16;
  spec.lora_rslora = true;
  EXPECT_EQ(spec.lora_scale(), 3.0);
}

TEST(CanonicalText, IsReadBackByKey) {
  const auto values =
      canonical_values("data.held_out = none\ndata.template = \"a = b\"\nno key\ntrain.updates = 12\n");
  EXPECT_EQ(values, (std::map<std::string, std::string>{
                        {"data.held_out", "none"}, {"data.template", "a = b"}, {"train.updates", "12"}}));
  Execution execution;
  execution.device = "cpu";
  EXPECT_EQ(canonical_values(canonical_text(execution)).at("precision"), "f32");
}

TEST(Canonical, NumbersAreReadWholeOrNotAtAll) {
  const auto values = canonical_values("a = 12\nb = 1e-08\nc = \"word\"\nd = 12x\n");
  EXPECT_EQ(integer_of(values, "a"), 12);
  EXPECT_EQ(real_of(values, "b"), 1e-8);
  for (const char* key : {"b", "c", "d", "e"}) EXPECT_EQ(integer_of(values, key), std::nullopt) << key;
  for (const char* key : {"c", "d", "e"}) EXPECT_EQ(real_of(values, key), std::nullopt) << key;
}

}  // namespace
}  // namespace tandem
