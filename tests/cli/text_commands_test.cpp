#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "io/text/own_tokenizer.hpp"
#include "io/trajectory.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/cli/render_command.hpp"
#include "src/cli/tokenize_command.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

class TextCommands : public testing::Test {
 protected:
  void SetUp() override { write_byte_level_tokenizer(folder_.path()); }

  std::string tokenize(const std::string& lines) {
    std::istringstream in(lines);
    std::ostringstream out, warnings;
    EXPECT_EQ(tokenize_command(folder_.path(), in, out), 0);
    return out.str();
  }
  std::string refusal(const std::string& lines) {
    try {
      tokenize(lines);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "no error";
  }

  RenderJob job() const {
    return {
        .model_dir = folder_.path(), .file = folder_ / "d.jsonl", .held_out = {}, .cache = {}, .options = {}};
  }

  support::TempFolder folder_;
};

TEST_F(TextCommands, TokenizeAnswersEachJsonStringWithAnArray) {
  EXPECT_EQ(tokenize("\"ab\"\n\n\"\"\r\n\"a\\u0000<|im_end|>\""), "[97,98]\n[]\n[97,0,258]\n");
  EXPECT_EQ(tokenize(""), "");
}

TEST_F(TextCommands, TokenizeRefusesWhatIsNoJsonStringWithItsLine) {
  EXPECT_EQ(refusal("\"a\"\n[\"b\"]\n"), "standard input line 2: array, not a JSON string");
  EXPECT_TRUE(refusal("\"a\"\nb\n").starts_with("standard input line 2 column 1: ")) << refusal("\"a\"\nb\n");
  EXPECT_EQ(refusal("\"\xFF\"\n"), "standard input line 1 column 2: not valid UTF-8");
}

TEST_F(TextCommands, RenderPrintsLineTextIdsTargetsAndDigest) {
  support::write_text(folder_ / "d.jsonl",
                      "\n"
                      R"({"ids":[1,2,3],"targets":[0,1,1]})"
                      "\n"
                      R"({"prompt":"\u00e9","completion":"r"})"
                      "\n");
  std::ostringstream out, warnings;
  EXPECT_EQ(render_rows(job(), out, warnings), 0);
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  // The digest: sha256 of three int32 and three bytes, computed with Python's hashlib.
  EXPECT_EQ(
      line,
      R"({"line":2,"text":null,"ids":[1,2,3],"targets":[0,1,1],"digest":"8ee76fc302a97c32b65afd570f2f9b0204bbfd1e99f026729713dc42b2f82c7b"})");
  std::getline(lines, line);
  const json row = json::parse(line);
  EXPECT_EQ(row["line"], 3);
  EXPECT_EQ(
      row["text"],
      "<|im_start|>user\n\u00E9<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nr<|im_end|>\n");
  EXPECT_EQ(row["ids"].size(), row["targets"].size());
  EXPECT_FALSE(std::getline(lines, line));
}

constexpr const char* kTwoRows = R"({"prompt":"q\u001b[31m","completion":"\u00e9"})"
                                 "\n"
                                 R"({"ids":[104,105,999,255],"targets":[1,1,1,0]})"
                                 "\n";

TEST_F(TextCommands, ShowBracketsWhatIsScoredAndDefusesControlCharacters) {
  support::write_text(folder_ / "d.jsonl", kTwoRows);
  std::ostringstream out, warnings;
  EXPECT_EQ(render_show(job(), 9, false, out, warnings), 0);
  const auto lines = support::lines_of(out.str());
  ASSERT_EQ(lines.size(), 12u) << out.str();
  EXPECT_TRUE(lines[0].starts_with("sample 0, line 1: 35 tokens, 3 scored, digest ")) << lines[0];
  EXPECT_EQ(lines[1], "<|im_start|>user");
  EXPECT_EQ(lines[2], "q\\x1b[31m<|im_end|>");
  EXPECT_EQ(lines[8], "\u27E6\u00E9<|im_end|>\u27E7");
  EXPECT_TRUE(lines[10].starts_with("sample 1, line 2: 4 tokens, 2 scored, digest ")) << lines[10];
  // Token 0 is never scored; 999 is no token of this tokenizer, byte 255 no text.
  EXPECT_EQ(lines[11], "h\u27E6i<999>\u27E7\\xff");
}

TEST_F(TextCommands, ShowColoursScoredTokensAndUnderlinesControlTokens) {
  support::write_text(folder_ / "d.jsonl", kTwoRows);
  std::ostringstream out, warnings;
  EXPECT_EQ(render_show(job(), 1, true, out, warnings), 0);
  const auto lines = support::lines_of(out.str());
  ASSERT_EQ(lines.size(), 9u) << out.str();
  EXPECT_EQ(lines[1], "\x1b[4m<|im_start|>\x1b[0muser");
  EXPECT_EQ(lines[8], "\x1b[32m\u00E9\x1b[0m\x1b[32m\x1b[4m<|im_end|>\x1b[0m");
}

TEST_F(TextCommands, ShowStopsReadingAndNeedsNoTokenizerForTokenisedRows) {
  support::write_text(folder_ / "d.jsonl", R"({"ids":[104],"targets":[1]})"
                                           "\nno row\n");
  std::filesystem::remove(folder_ / "tokenizer.json");
  std::ostringstream out, warnings;
  EXPECT_EQ(render_show(job(), 1, false, out, warnings), 0);
  EXPECT_EQ(support::lines_of(out.str()).at(1), "<104>");
}

TEST_F(TextCommands, DigestWritesAFileThatAgainstFindsEqual) {
  support::write_text(folder_ / "d.jsonl", kTwoRows);
  support::write_text(folder_ / "h.jsonl", R"({"prompt":"held","completion":"out"})");
  RenderJob both = job();
  both.held_out = folder_ / "h.jsonl";
  std::ostringstream out, warnings;
  EXPECT_EQ(render_digest(both, folder_ / "r.h5", false, out, warnings), 0);
  const Trajectory t = read_trajectory(folder_ / "r.h5");
  EXPECT_EQ(t.render->n_train, 2);
  EXPECT_EQ(t.render->digest.size(), 3u);
  EXPECT_EQ(t.render->n_targets, (std::vector<std::int64_t>{3, 2, 4}));
  EXPECT_EQ(t.provenance.at("data.max_tokens"), "1024");
  EXPECT_EQ(t.provenance.at("data.held_out"), sha256_file(folder_ / "h.jsonl"));
  const std::string account = out.str().substr(out.str().find(": ") + 2);
  std::ostringstream said;
  EXPECT_EQ(render_against(both, folder_ / "r.h5", said, warnings), 0);
  EXPECT_EQ(said.str(), (folder_ / "r.h5").string() + " (native): equal; " + account);
}

TEST_F(TextCommands, AgainstShowsTheFirstTokenThatDiffersAndEndsWithDisagreement) {
  support::write_text(folder_ / "d.jsonl", kTwoRows);
  // Another stack's file: a token more in sample 1.
  TrajectoryHeader header;
  header.stack = "other";
  header.records_updates = header.records_eval = false;
  SampleSet theirs;
  const Dataset ours = load_dataset(folder_ / "d.jsonl", folder_.path(), {});
  theirs.add(ours.samples.ids(0), ours.samples.targets(0), 1);
  theirs.add(std::vector<std::int32_t>{104, 105, 10, 999, 255}, std::vector<std::uint8_t>{1, 1, 1, 1, 0}, 2);
  TrajectoryWriter writer(folder_ / "other.h5", header, 0.0);
  writer.set_render(theirs, SampleSet(), "", true);
  writer.finish();
  std::ostringstream out, warnings;
  try {
    render_against(job(), folder_ / "other.h5", out, warnings);
    FAIL() << "no difference found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDisagreement);
    EXPECT_EQ(error.what(), (folder_ / "other.h5").string() + " (other): 1 of 2 samples differ");
  }
  const auto lines = support::lines_of(out.str());
  ASSERT_EQ(lines.size(), 12u) << out.str();
  EXPECT_EQ(lines[0], "training sample 1 (" + (folder_ / "d.jsonl").string() + " line 2) differs");
  EXPECT_EQ(lines[1], "  tokens       here 4, there 5");
  EXPECT_EQ(lines[2], "  scored       here 2, there 3");
  EXPECT_EQ(lines[5], "the first difference is at token 2:");
  EXPECT_EQ(lines[6], "   token  here              there");
  EXPECT_EQ(lines[8], "       1  105 \"i\" scored    105 \"i\" scored");
  EXPECT_EQ(lines[9], ">      2  999 <999> scored  10 \"\\n\" scored");
  EXPECT_EQ(lines[11], "       4  -                 255 \"\\xff\"");
}

TEST_F(TextCommands, AgainstRefusesAFileOfOtherInputs) {
  support::write_text(folder_ / "d.jsonl", kTwoRows);
  std::ostringstream out, warnings;
  render_digest(job(), folder_ / "r.h5", false, out, warnings);
  RenderJob other = job();
  other.options.max_tokens = 50;
  try {
    render_against(other, folder_ / "r.h5", out, warnings);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find("data.max_tokens = 1024, here it is 50"), std::string::npos);
  }
}

TEST_F(TextCommands, RenderSaysSoWhenItCannotWrite) {
  support::write_text(folder_ / "d.jsonl", R"({"ids":[1],"targets":[0]})");
  std::ostringstream out, warnings;
  out.setstate(std::ios::badbit);
  EXPECT_THROW(render_rows(job(), out, warnings), Error);
}

}  // namespace
}  // namespace tandem
