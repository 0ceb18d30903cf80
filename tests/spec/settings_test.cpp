#include "src/spec/settings.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "src/base/error.hpp"
#include "src/spec/keys.hpp"
#include "src/spec/nearest.hpp"

namespace tandem {
namespace {

Config read(const std::string& text) { return make_config(parse_config(text, "a.cfg", ""), {}); }

std::string usage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& text) {
  return usage_error([&] { read(text); });
}

TEST(ConfigFile, ReadsEveryTypeOfValue) {
  const Config config = read(
      "# a comment\n"
      "\n"
      "  lora.rank=8\n"
      "lora.alpha = 12.5   # half of 25\n"
      "lora.rslora = true\n"
      "optim.schedule\t=\tlinear\n"
      "seed = 18446744073709551615\n"
      "data.train = rows.jsonl\n"
      "optim.clip = -1\n");
  EXPECT_EQ(config.spec.lora_rank, 8);
  EXPECT_EQ(config.spec.lora_alpha, 12.5);
  EXPECT_TRUE(config.spec.lora_rslora);
  EXPECT_EQ(config.spec.optim_schedule, "linear");
  EXPECT_EQ(config.spec.seed_order, 18446744073709551615ull);
  EXPECT_EQ(config.spec.train.path, "rows.jsonl");
  EXPECT_EQ(config.spec.optim_clip, -1.0);
}

TEST(ConfigFile, ToleratesByteOrderMarkCrlfAndAMissingLastNewline) {
  const Config config = read("\xEF\xBB\xBFlora.rank = 4\r\nlora.alpha = 3\r\nbatch.global = 2");
  EXPECT_EQ(config.spec.lora_rank, 4);
  EXPECT_EQ(config.spec.lora_alpha, 3.0);
  EXPECT_EQ(config.spec.batch_global, 2);
}

TEST(ConfigFile, HashInsideAValueIsNoComment) {
  EXPECT_EQ(read("data.train = rows#2.jsonl").spec.train.path, "rows#2.jsonl");
  EXPECT_EQ(read("data.train = rows #2.jsonl").spec.train.path, "rows");
  EXPECT_EQ(read("data.train = \"rows #2.jsonl\" # two").spec.train.path, "rows #2.jsonl");
}

TEST(ConfigFile, QuotesFollowJson) {
  EXPECT_EQ(read(R"(data.train = "a \"b\" \\ é")").spec.train.path, "a \"b\" \\ é");
  EXPECT_NE(error_of("data.train = \"a").find("a.cfg:1: data.train: the quote is not closed"),
            std::string::npos);
  EXPECT_NE(error_of("data.train = \"a\" b").find("after the closing quote"), std::string::npos);
  EXPECT_NE(error_of("data.train = \"a\"# b").find("after the closing quote"), std::string::npos);
  EXPECT_NE(error_of("data.train = \"a\\q\"").find("no JSON string"), std::string::npos);
  EXPECT_NE(error_of("data.train = \"a\\\"").find("not closed"), std::string::npos);
}

TEST(ConfigFile, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(error_of("\nlora.rank = 0\n"), "a.cfg:2: lora.rank = 0: must be an integer from 1 to 4096");
  EXPECT_EQ(error_of("lora.rank 8"),
            "a.cfg:1: `lora.rank 8`: a line is `key = value`, a comment starts with #");
  EXPECT_EQ(error_of("lora.rank ="), "a.cfg:1: lora.rank: has no value");
  EXPECT_EQ(error_of("= 3"), "a.cfg:1: no key before the `=`");
  EXPECT_EQ(error_of("lora.rank = 8\nlora.alpha = 4\nlora.rank = 8"),
            "a.cfg:3: lora.rank: given twice, first at a.cfg:1");
  EXPECT_EQ(error_of("lora.rnk = 8"), "a.cfg:1: unknown key `lora.rnk`, the nearest one is `lora.rank`");
  EXPECT_EQ(error_of("rank = 8"), "a.cfg:1: unknown key `rank`, the nearest one is `lora.rank`");
  EXPECT_EQ(error_of("[lora]"), "a.cfg:1: `[lora]`: a line is `key = value`, a comment starts with #");
  EXPECT_EQ(error_of("optim.lr = 1e-4x"), "a.cfg:1: optim.lr = 1e-4x: must be a number >= 0");
}

TEST(ConfigFile, RefusesNumbersThatAreNone) {
  for (const char* value : {"nan", "inf", "-inf", "1e999", "0x10", "1,5", "--1", "1 2", "+"})
    EXPECT_NE(error_of(std::string("optim.clip = ") + value), "no error") << value;
  for (const char* value : {"8.0", "1e1", "-1", "99999999999999999999"})
    EXPECT_NE(error_of(std::string("lora.rank = ") + value), "no error") << value;
  for (const char* value : {"True", "1", "yes"})
    EXPECT_NE(error_of(std::string("lora.rslora = ") + value), "no error") << value;
  EXPECT_NE(error_of("lora.dropout = 1"), "no error");
  EXPECT_NE(error_of("seed = -1"), "no error");
}

TEST(ConfigFile, TargetsAreAnySubsetInOneOrder) {
  const auto targets = [](const std::string& text) {
    return read("lora.targets = " + text).spec.lora_targets;
  };
  EXPECT_EQ(targets("down, q,v"), (std::vector<std::string>{"q", "v", "down"}));
  EXPECT_EQ(targets("gate"), std::vector<std::string>{"gate"});
  for (const char* bad : {"q,q", "q,", ",q", "x", "q v", "Q"})
    EXPECT_EQ(
        error_of(std::string("lora.targets = ") + bad),
        std::string("a.cfg:1: lora.targets = ") + bad + ": must be one or more of q,k,v,o,gate,up,down");
}

TEST(ConfigFile, RelativePathsStartAtTheFilesFolder) {
  const auto path_of = [](const std::string& value) {
    return make_config(parse_config("data.train = " + value, "configs/a.cfg", "configs"), {}).spec.train.path;
  };
  EXPECT_EQ(path_of("rows.jsonl"), "configs/rows.jsonl");
  EXPECT_EQ(path_of("../rows.jsonl"), "rows.jsonl");
  EXPECT_EQ(path_of("/data/rows.jsonl"), "/data/rows.jsonl");
  EXPECT_EQ(path_of("none"), "");
  EXPECT_EQ(path_of("./none"), "configs/none");
}

TEST(ConfigFile, ThatCannotBeReadIsAnInputError) {
  for (const char* path : {"/no/such/file.cfg", "/"}) {
    try {
      read_config_file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(std::string(error.what()).find(path), 0u) << error.what();
    }
  }
}

TEST(Options, WinOverTheFileAndKeepTheirOrigin) {
  const Settings file = parse_config("lora.rank = 8\nlora.alpha = 3", "a.cfg", "");
  Settings options;
  add_option(options, "lora.rank", "4");
  const Config config = make_config(file, options);
  EXPECT_EQ(config.spec.lora_rank, 4);
  EXPECT_EQ(config.spec.lora_alpha, 3.0);
  EXPECT_EQ(options.at("lora.rank").origin, "command line");
  EXPECT_EQ(file.at("lora.alpha").origin, "a.cfg:2");
  EXPECT_EQ(usage_error([&] { add_option(options, "batch.size", "4"); }),
            "unknown key `batch.size`, the nearest one is `batch.micro`");
}

TEST(Seed, SetsTheThreeAndEachMayDiffer) {
  const Config config = read("seed.order = 5\nseed = 7");
  EXPECT_EQ(config.spec.seed_adapter, 7u);
  EXPECT_EQ(config.spec.seed_order, 5u);
  EXPECT_EQ(config.spec.seed_dropout, 7u);
}

TEST(Values, ThatDoNotFitTogetherAreRefusedWithTheirPlaces) {
  EXPECT_EQ(error_of("optim.lr_min = 0.1"),
            "optim.lr_min (a.cfg:1) = 0.1: must not be above optim.lr (default) = 0.0002");
  EXPECT_EQ(error_of("optim.warmup = 3\ntrain.updates = 3"),
            "optim.warmup (a.cfg:1) = 3: must be below train.updates (a.cfg:2) = 3");
}

TEST(Values, AMirrorThatDoesNothingOrTwoThingsIsRefused) {
  EXPECT_EQ(error_of("mirror.mode = both"),
            "mirror.mode (a.cfg:1) = both: give mirror.every, the updates between audits");
  EXPECT_EQ(error_of("mirror.mode = free\nmirror.every = 5"),
            "mirror.mode (a.cfg:1) = free: no updates are audited; leave mirror.every at 0, or take both");
  EXPECT_TRUE(read("mirror.every = 5").execution.audits());
  EXPECT_FALSE(read("mirror.every = 5").execution.free_run());
  EXPECT_FALSE(read("").execution.mirrored());
  EXPECT_TRUE(read("mirror.mode = free").execution.mirrored());
}

TEST(Keys, PlainValuesAreReadBack) {
  const Config config = read("lora.targets = q\nlora.alpha = 1e-5\nrun.out = x y\nseed.order = 3");
  for (const Key& key : keys()) {
    const std::string text = key.plain(config);
    if (text.empty()) continue;
    Config other;
    key.set(other, text);
    EXPECT_EQ(key.plain(other), text) << key.name;
  }
}

TEST(Keys, EachIsDocumentedAndNamedOnce) {
  Settings seen;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert({key.name, {}}).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.range_text().empty()) << key.name;
    EXPECT_FALSE(key.default_text().empty()) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
  }
  EXPECT_EQ(find_key("lora"), nullptr);
}

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("rakn", "rank"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);
  EXPECT_EQ(nearest("trian", {"train", "render", "spec"}), "train");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("lr", key_names()), "optim.lr");
  EXPECT_EQ(nearest("learning.rate", {"optim.lr"}), "optim.lr");
}

}  // namespace
}  // namespace tandem
