#include "io/sample_cache.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "io/text/own_tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Rows that set every count of the report but two: `dropped` excludes `cut`, and all bytes have tokens.
const std::string kRows =
    R"({"messages":[{"role":"user","content":"q <|im_end|>"},{"role":"assistant","content":"x<think>\nA\n</think>\n\nr1"},{"role":"user","content":"q2"},{"role":"assistant","content":"r2"}]})"
    "\n\n"
    R"({"prompt":"e\u0301","completion":"\u4E2D answer"})"
    "\n"
    R"({"ids":[1,2,3],"targets":[1,0,0]})"
    "\n";

class SampleCache : public testing::Test {
 protected:
  void SetUp() override {
    write_byte_level_tokenizer(model_);
    support::write_text(data_, kRows);
    aids_.cache = folder_ / "cache/tokens";
    options_.max_tokens = 40;
  }
  Dataset load() { return load_dataset(data_, model_, options_, aids_); }
  fs::path only_file() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(aids_.cache)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files[0];
  }
  std::size_t n_files() {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(aids_.cache), fs::directory_iterator()));
  }

  support::TempFolder folder_;
  fs::path model_ = folder_.path(), data_ = folder_ / "d.jsonl";
  RenderOptions options_;
  LoadAids aids_;
};

std::string digest_of(const Dataset& dataset) {
  Sha256 hash;
  for (std::int64_t i = 0; i < dataset.samples.size(); ++i)
    hash.update(dataset.samples.digest(i) + std::to_string(dataset.samples.line(i)));
  return hash.hex();
}

void expect_same(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.samples.all_begins(), b.samples.all_begins());
  EXPECT_EQ(a.samples.all_ids(), b.samples.all_ids());
  EXPECT_EQ(a.samples.all_targets(), b.samples.all_targets());
  EXPECT_EQ(a.samples.all_lines(), b.samples.all_lines());
  EXPECT_EQ(a.report.warnings(), b.report.warnings());
  const DatasetReport &x = a.report, &y = b.report;
  EXPECT_EQ(x.rows, y.rows);
  EXPECT_EQ(x.blank, y.blank);
  EXPECT_EQ(x.tokens, y.tokens);
  EXPECT_EQ(x.target_tokens, y.target_tokens);
  EXPECT_EQ(x.longest, y.longest);
  EXPECT_EQ(x.template_name, y.template_name);
  EXPECT_EQ(x.template_digest, y.template_digest);
}

TEST_F(SampleCache, GivesTheSecondLoadTheSameSamplesAndReport) {
  const Dataset plain = load_dataset(data_, model_, options_);
  const Dataset first = load();
  EXPECT_FALSE(first.report.from_cache);
  EXPECT_EQ(first.report.warnings().size(),
            5u);  // cut, nothing to score, reasoning, other text, control tokens
  const Dataset second = load();
  EXPECT_TRUE(second.report.from_cache);
  expect_same(plain, first);
  expect_same(first, second);
  EXPECT_EQ(only_file().extension(), ".samples");
}

TEST_F(SampleCache, IsOfTheSameInputsOnly) {
  load();
  const auto misses = [&](const char* what) { EXPECT_FALSE(load().report.from_cache) << what; };
  const RenderOptions before = options_;
  options_.max_tokens = 41;
  misses("max_tokens");
  options_ = before;
  options_.truncate = "drop";
  misses("truncate");
  options_ = before;
  options_.targets = "last";
  misses("targets");
  options_ = before;
  options_.special_in_text = "plain";
  misses("special_in_text");
  options_ = before;
  options_.chat_template = "chatml";
  misses("template");
  options_ = before;
  options_.vocab_size = 100000;
  misses("vocab_size");
  options_ = before;
  EXPECT_TRUE(load().report.from_cache);
  options_.threads = 3;  // changes no sample
  EXPECT_TRUE(load().report.from_cache);
  support::write_text(data_, kRows + "\n");
  misses("the rows");
  support::write_text(data_, kRows);
  support::write_text(model_ / "chat_template.jinja",
                      support::read_text(model_ / "chat_template.jinja") + " ");
  options_.chat_template = "qwen3";
  misses("the model's template");
}

TEST_F(SampleCache, ThatIsDamagedIsSaidAndWrittenAnew) {
  const Dataset good = load();
  const fs::path file = only_file();
  const std::string bytes = support::read_text(file);
  std::vector<std::string> damaged = {"", "x", bytes + "x", "tandem-samples 2\n" + bytes.substr(17)};
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    damaged.push_back(bytes.substr(0, at));
    damaged.push_back(bytes);
    damaged.back()[at] ^= 0x20;
  }
  // A length that asks for more than there is.
  damaged.push_back(bytes);
  damaged.back()[17 + 7] = '\x7F';
  for (const std::string& one : damaged) {
    support::write_text(file, one);
    const Dataset again = load();
    EXPECT_FALSE(again.report.from_cache);
    ASSERT_TRUE(again.report.cache_trouble.starts_with(file.string() + ": ")) << again.report.cache_trouble;
    EXPECT_EQ(again.report.cache_trouble.find('\n'), std::string::npos);
    EXPECT_EQ(again.report.warnings().back(), "token cache: " + again.report.cache_trouble);
    EXPECT_EQ(digest_of(again), digest_of(good));
    ASSERT_EQ(support::read_text(file), bytes);
  }
}

TEST_F(SampleCache, OfOtherInputsUnderThisNameIsNotTaken) {
  load();
  const fs::path file = only_file();
  options_.max_tokens = 41;
  const std::string key = cache_key(sha256_file(data_), model_, options_);
  EXPECT_THROW(read_cached(file, key), Error);
  EXPECT_EQ(read_cached(folder_ / "absent", key), std::nullopt);
}

TEST_F(SampleCache, ThatCannotBeWrittenStopsNothing) {
  support::write_text(folder_ / "file", "");
  aids_.cache = folder_ / "file/cache";
  const Dataset dataset = load();
  EXPECT_EQ(dataset.samples.size(), 3);
  EXPECT_NE(dataset.report.cache_trouble, "");
}

TEST_F(SampleCache, IsOnlyReadWhereSoAsked) {
  aids_.write_cache = false;
  EXPECT_FALSE(load().report.from_cache);
  EXPECT_FALSE(fs::exists(aids_.cache));
  aids_.write_cache = true;
  load();
  aids_.write_cache = false;
  EXPECT_TRUE(load().report.from_cache);
}

TEST_F(SampleCache, MayBeWrittenByManyAtOnce) {
  const std::string good = digest_of(load_dataset(data_, model_, options_));
  std::vector<Dataset> loaded(8);
  {
    std::vector<std::jthread> threads;
    for (Dataset& one : loaded) threads.emplace_back([&] { one = load(); });
  }
  for (const Dataset& one : loaded) {
    EXPECT_EQ(one.report.cache_trouble, "");
    EXPECT_EQ(digest_of(one), good);
  }
  EXPECT_EQ(n_files(), 1u);
  EXPECT_TRUE(load().report.from_cache);
}

TEST_F(SampleCache, ForgetsWhatKilledWritersLeftBehind) {
  load();
  const fs::path old = aids_.cache / "a.samples.tmp-1", young = aids_.cache / "b.samples.tmp-2";
  support::write_text(old, "half");
  support::write_text(young, "half");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  options_.max_tokens = 41;
  load();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

// Fixed inputs, each template and policy. Where this digest changes, ids or marks of something changed, and
// caches written before are wrong: raise kRenderVersion, then put the new digest here.
TEST(SampleCacheVersion, StandsForWhatRenderingGives) {
  ASSERT_EQ(kRenderVersion, 2);
  const support::TempFolder folder;
  write_byte_level_tokenizer(folder.path());
  support::write_text(folder / "d.jsonl", kRows);
  Sha256 hash;
  for (const char* name : {"qwen3", "smollm2", "chatml"})
    for (const char* special : {"encode", "plain"})
      for (const char* targets : {"all", "last"}) {
        RenderOptions options;
        options.chat_template = name;
        options.special_in_text = special;
        options.targets = targets;
        hash.update(digest_of(load_dataset(folder / "d.jsonl", folder.path(), options)));
      }
  EXPECT_EQ(hash.hex(), "12ea9085c544ccc4fb2cd5d857e6c165a9158e4b51114b0e2407b92c48884bff");
}

}  // namespace
}  // namespace tandem
