// `prepare_clinical` on small files: every row accounted for, no duplicate, no leak, nothing half-written.
#include "io/clinical/prepare.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "io/clinical/fold.hpp"
#include "io/dataset.hpp"
#include "io/text/own_tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

class Prepare : public testing::Test {
 protected:
  PrepareOptions options() const {
    PrepareOptions options;
    options.out = folder_ / "out";
    options.held_out_share = 0;
    return options;
  }
  PrepareOptions::Source source(SourceKind kind, const std::string& name, const std::string& text) {
    support::write_text(folder_ / name, text);
    return {kind, folder_ / name};
  }
  std::vector<json> rows(const std::string& name) const {
    std::vector<json> list;
    std::istringstream in(support::read_text(folder_ / "out" / name));
    for (std::string line; std::getline(in, line);) list.push_back(json::parse(line));
    return list;
  }
  static std::string refusal(const PrepareOptions& options, ErrorKind kind = ErrorKind::kInput) {
    try {
      prepare_clinical(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }
  static std::string turn(const json& row, int i) { return row["messages"][i]["content"].get<std::string>(); }

  support::TempFolder folder_;
};

std::string mcqa(const std::string& question, int cop, const json& exp = nullptr,
                 const std::vector<std::string>& options = {"w", "x", "y", "z"}) {
  return json({{"question", question},
               {"exp", exp},
               {"cop", cop},
               {"opa", options[0]},
               {"opb", options[1]},
               {"opc", options[2]},
               {"opd", options[3]},
               {"id", "m"}})
             .dump() +
         "\n";
}

std::string medqa(const std::string& question, const std::string& answer,
                  const std::vector<std::string>& options) {
  return json({{"question", question}, {"answer", answer}, {"options", options}}).dump() + "\n";
}

TEST_F(Prepare, WritesTurnsWithTheWordingAndATextAsTarget) {
  PrepareOptions o = options();
  o.sources = {source(SourceKind::kMedmcqa, "m", mcqa("Which?", 4, "Ans. D. Because z.") + mcqa("What? ", 1)),
               source(SourceKind::kPubmedqa, "p",
                      R"({"7":{"QUESTION":"Is it?","CONTEXTS":["We looked.","It was."],"LABELS":["AIMS",""],
                          "LONG_ANSWER":"It is.","final_decision":"yes"},
                          "8":{"QUESTION":"Was it?","CONTEXTS":["c"],"final_decision":"no"}})")};
  prepare_clinical(o);
  const auto train = rows("train.jsonl");
  ASSERT_EQ(train.size(), 4u);
  EXPECT_EQ(turn(train[0], 0),
            "Answer this medical question in words.\n\nQuestion: Which?\n\nOptions:\nA. w\nB. x\nC. y\nD. z");
  EXPECT_EQ(turn(train[0], 1), "Because z.");
  EXPECT_EQ(train[0]["target"], "explanation");
  EXPECT_EQ(turn(train[1], 1), "The correct answer is: w.");
  EXPECT_EQ(train[1]["target"], "answer");
  EXPECT_EQ(
      turn(train[2], 0),
      "Answer this question from the abstract.\n\nAbstract:\nAIMS: We looked.\nIt was.\n\nQuestion: Is it?");
  EXPECT_EQ(turn(train[2], 1), "It is.");
  EXPECT_EQ(train[2]["id"], "7");
  EXPECT_EQ(turn(train[3], 1), "The answer to the question is: no.");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / "held_out.jsonl"));
}

TEST_F(Prepare, RowsLoadAsTrainingRows) {
  PrepareOptions o = options();
  o.sources = {source(SourceKind::kMedmcqa, "m", mcqa("Which?", 4, "Because.") + mcqa("What?", 1))};
  prepare_clinical(o);
  std::filesystem::create_directory(folder_ / "model");
  write_byte_level_tokenizer(folder_ / "model");
  const Dataset data = load_dataset(folder_ / "out" / "train.jsonl", folder_ / "model", {});
  EXPECT_EQ(data.samples.size(), 2);
  EXPECT_EQ(data.report.without_targets, 0);
}

TEST_F(Prepare, NeverLeavesALetterAsTarget) {
  PrepareOptions o = options();
  // Nothing but the letter, nothing but the answer, glued to the answer: the sentence or what is left.
  o.sources = {source(SourceKind::kMedmcqa, "m",
                      mcqa("Q1", 4, "Answer- D") + mcqa("Q2", 4, "Ans. D. Z") +
                          mcqa("Q3", 1, "A i.e. W, since") + mcqa("Q4", 2, "Ans. B-X because") +
                          mcqa("Q5", 2, "A patient has x."))};
  const PrepareReport report = prepare_clinical(o);
  const auto train = rows("train.jsonl");
  ASSERT_EQ(train.size(), 5u);
  const std::vector<std::string> targets = {"The correct answer is: z.", "The correct answer is: z.",
                                            "W, since", "X because", "A patient has x."};
  for (std::size_t i = 0; i < targets.size(); ++i) EXPECT_EQ(turn(train[i], 1), targets[i]);
  EXPECT_EQ(report.total().letters_left_out.rows, 4);
  EXPECT_EQ(report.total().letters_disagree.rows, 0);
}

TEST_F(Prepare, AccountsForEveryRejectedRowWithItsFirstLine) {
  PrepareOptions o = options();
  o.sources = {
      source(SourceKind::kMedmcqa, "m",
             mcqa("Q", 4) + mcqa(" ?! ", 1) + mcqa("...", 1) + mcqa("R", 1, nullptr, {"w", " \n", "y", "z"}) +
                 R"({"question":"S","opa":"w","opb":"x","opc":"y","opd":"z"})"),
      source(SourceKind::kMedqa, "d",
             medqa("T", "q", {"p"}) + medqa("U", "p", {"p"}) + medqa("V", "", {"p", "q"})),
      source(
          SourceKind::kPubmedqa, "p",
          R"({"1":{"QUESTION":"X","CONTEXTS":[" "],"LONG_ANSWER":"e"},"2":{"QUESTION":"Y","CONTEXTS":["c"]}})")};
  const PrepareReport report = prepare_clinical(o);
  const auto rejected = [&](std::size_t file, Reason reason) {
    return report.sources[file]
        .fates[static_cast<std::size_t>(Fate::kRejected) + static_cast<std::size_t>(reason)];
  };
  EXPECT_EQ(rejected(0, Reason::kNoQuestion).rows, 2);
  EXPECT_EQ(rejected(0, Reason::kNoQuestion).first_line, 2);
  EXPECT_EQ(rejected(0, Reason::kEmptyOption).rows, 1);
  EXPECT_EQ(rejected(0, Reason::kNoAnswer).first_line, 5);
  EXPECT_EQ(rejected(1, Reason::kContradiction).rows, 1);
  EXPECT_EQ(rejected(1, Reason::kFewOptions).rows, 1);
  EXPECT_EQ(rejected(1, Reason::kNoAnswer).rows, 1);
  EXPECT_EQ(rejected(2, Reason::kNoContext).rows, 1);
  EXPECT_EQ(rejected(2, Reason::kNoAnswer).rows, 1);
  for (const SourceAccount& source : report.sources) EXPECT_EQ(source.accounted(), source.rows);
  EXPECT_EQ(report.total().rows, 10);
  EXPECT_EQ(report.total().train(), 1);
}

TEST_F(Prepare, WithoutAnswersOnlyExplanationsAreLeft) {
  PrepareOptions o = options();
  o.answers = false;
  o.sources = {
      source(SourceKind::kMedmcqa, "m", mcqa("Q", 4, "Why.") + mcqa("R", 1) + mcqa("S", 1, "Ans. A"))};
  const PrepareReport report = prepare_clinical(o);
  EXPECT_EQ(rows("train.jsonl").size(), 1u);
  EXPECT_EQ(report.sources[0].fates.back().rows, 2);
}

TEST_F(Prepare, KeepsTheFirstOfEqualQuestionsWithinAndAcrossFiles) {
  PrepareOptions o = options();
  const std::vector<std::string> four = {"w", "x", "y", "z"};
  o.sources = {
      source(SourceKind::kMedmcqa, "m",
             mcqa("A b?", 4, "E") +                            // kept
                 mcqa("A b?", 4, "E") +                        // exact
                 mcqa("a  B", 4, "F") +                        // folded
                 mcqa("A b?", 1, "G") +                        // the same options, another answer
                 mcqa("A b?", 1, "H", {"1", "2", "3", "5"})),  // another question of the same words: kept
      source(SourceKind::kMedqa, "d",
             medqa("a-B", "z", {"z", "v"}) +  // folded: other options, the same answer
                 medqa("C", "w", four) + medqa("C", "w", {"z", "y", "x", "w"})),
      source(SourceKind::kMedqa, "e", medqa("C", "w", four))};  // exact, other file
  const PrepareReport report = prepare_clinical(o);
  const auto& m = report.sources[0];
  EXPECT_EQ(m.fate(Fate::kExactSameFile).rows, 1);
  EXPECT_EQ(m.fate(Fate::kExactSameFile).first_line, 2);
  EXPECT_EQ(m.fate(Fate::kFoldedSameFile).rows, 2);
  EXPECT_EQ(m.conflicting.rows, 1);
  EXPECT_EQ(m.train(), 2);
  EXPECT_EQ(report.sources[1].fate(Fate::kFoldedOtherFile).rows, 1);
  EXPECT_EQ(report.sources[1].fate(Fate::kFoldedSameFile).rows, 1);
  EXPECT_EQ(report.sources[2].fate(Fate::kExactOtherFile).rows, 1);
  EXPECT_EQ(rows("train.jsonl").size(), 3u);
}

// Enough questions that both sides have some.
std::string many_questions(int from, int to, const std::string& exp = "") {
  std::string text;
  for (int i = from; i < to; ++i)
    text +=
        mcqa("Question number " + std::to_string(i), 4, exp.empty() ? "Reason " + std::to_string(i) : exp);
  return text;
}

TEST_F(Prepare, HoldsOutByTheQuestionsTextAlone) {
  PrepareOptions o = options();
  o.held_out_share = 0.3;
  o.sources = {source(SourceKind::kMedmcqa, "m", many_questions(0, 200))};
  prepare_clinical(o);
  std::map<std::string, std::string> sides;
  for (const char* side : {"train.jsonl", "held_out.jsonl"})
    for (const json& row : rows(side)) sides[turn(row, 0)] = side;
  ASSERT_EQ(sides.size(), 200u);
  const auto held_out = rows("held_out.jsonl").size();
  // Binomial(200, 0.3): 60 expected, standard deviation 6.5; five of them.
  EXPECT_GE(held_out, 28u);
  EXPECT_LE(held_out, 92u);
  for (int i = 0; i < 200; ++i) {
    const std::string folded = "questionnumber" + std::to_string(i);
    const double point =
        static_cast<double>(std::stoull(sha256_hex(folded).substr(0, 16), nullptr, 16) >> 11) * 0x1p-53;
    const std::string user = "Answer this medical question in words.\n\nQuestion: Question number " +
                             std::to_string(i) + "\n\nOptions:\nA. w\nB. x\nC. y\nD. z";
    EXPECT_EQ(sides.at(user), point < 0.3 ? "held_out.jsonl" : "train.jsonl");
  }

  // Another source before and after, in another order: no row changes sides.
  o.overwrite = true;
  o.sources = {source(SourceKind::kMedmcqa, "n", many_questions(150, 400)), o.sources[0]};
  prepare_clinical(o);
  int n_seen = 0;
  for (const char* side : {"train.jsonl", "held_out.jsonl"})
    for (const json& row : rows(side))
      if (const auto found = sides.find(turn(row, 0)); found != sides.end()) {
        EXPECT_EQ(found->second, side);
        ++n_seen;
      }
  EXPECT_EQ(n_seen, 200);
}

TEST_F(Prepare, NoTextOfAHeldOutRowIsInTrain) {
  PrepareOptions o = options();
  o.held_out_share = 0.3;
  // Questions 0-99 share one explanation but for case and signs; some of them are held out.
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += mcqa("Question number " + std::to_string(i), 4, i % 2 ? "The SAME reason!" : "the same, reason");
  o.sources = {source(SourceKind::kMedmcqa, "m", text + many_questions(100, 150))};
  const PrepareReport report = prepare_clinical(o);
  EXPECT_GT(report.sources[0].fate(Fate::kHeldOutText).rows, 30);
  EXPECT_EQ(report.sources[0].accounted(), 150);
  std::set<std::string> held_out;
  for (const json& row : rows("held_out.jsonl")) held_out.insert(fold_text(turn(row, 1)));
  EXPECT_TRUE(held_out.contains("thesamereason"));
  for (const json& row : rows("train.jsonl")) EXPECT_FALSE(held_out.contains(fold_text(turn(row, 1))));
}

TEST_F(Prepare, RefusesFoldersThatHoldSomething) {
  PrepareOptions o = options();
  o.sources = {source(SourceKind::kMedmcqa, "m", mcqa("Q", 4))};
  prepare_clinical(o);
  const std::string before = support::read_text(folder_ / "out" / "prepare.json");
  EXPECT_NE(refusal(o).find("holds prepared data already"), std::string::npos) << refusal(o);
  o.overwrite = true;
  EXPECT_EQ(refusal(o), "no error");
  EXPECT_EQ(support::read_text(folder_ / "out" / "prepare.json"), before)
      << "the same input gives the same bytes";
  support::write_text(folder_ / "out" / "notes.txt", "mine");
  EXPECT_NE(refusal(o).find("holds notes.txt, which prepare did not write"), std::string::npos) << refusal(o);
  EXPECT_EQ(support::read_text(folder_ / "out" / "notes.txt"), "mine");
}

TEST_F(Prepare, AFaultInALaterFileLeavesNothingBehind) {
  PrepareOptions o = options();
  o.sources = {source(SourceKind::kMedmcqa, "m", mcqa("Q", 4)), source(SourceKind::kMedqa, "d", "{\n")};
  EXPECT_NE(refusal(o).find("d line 1 column "), std::string::npos) << refusal(o);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_FALSE(support::has_temporaries(folder_.path()));
  o.sources.pop_back();
  prepare_clinical(o);
  const std::string before = support::read_text(folder_ / "out" / "train.jsonl");
  o.sources.push_back({SourceKind::kMedqa, folder_ / "absent"});
  o.overwrite = true;
  EXPECT_NE(refusal(o).find("absent: cannot be opened"), std::string::npos) << refusal(o);
  EXPECT_EQ(support::read_text(folder_ / "out" / "train.jsonl"), before);
}

TEST_F(Prepare, RefusesToEndWithoutARowForTraining) {
  PrepareOptions o = options();
  o.sources = {source(SourceKind::kMedqa, "d", medqa("Q", "v", {"p", "q"}))};
  EXPECT_EQ(refusal(o), "no row is left for train of 1 rows in 1 files");
}

TEST_F(Prepare, ReportsTheSameNumbersAsJson) {
  PrepareOptions o = options();
  o.held_out_share = 0.3;
  o.sources = {
      source(SourceKind::kMedmcqa, "m", many_questions(0, 20) + mcqa("Question number 3", 4, "Reason 3"))};
  const PrepareReport report = prepare_clinical(o);
  const json object = json::parse(support::read_text(folder_ / "out" / "prepare.json"));
  EXPECT_EQ(object, json::parse(json_of(report)));
  EXPECT_EQ(object["all"]["rows"], 21);
  EXPECT_EQ(object["sources"][0]["duplicates"]["exact, same file"], json({{"rows", 1}, {"first_line", 21}}));
  EXPECT_EQ(object["outputs"][0]["sha256"], sha256_file(folder_ / "out" / "train.jsonl"));
  EXPECT_EQ(object["outputs"][1]["rows"], rows("held_out.jsonl").size());
  EXPECT_EQ(object["sources"][0]["sha256"], sha256_file(folder_ / "m"));
}

TEST(PrepareReal, AllRowsOfTheThreeSourcesAreAccountedFor) {
  const auto medmcqa = support::data_path("medmcqa/dev.json"),
             medqa_file = support::data_path("medqa/medagents_test.jsonl"),
             pubmedqa = support::data_path("pubmedqa/ori_pqal.json");
  if (!medmcqa || !medqa_file || !pubmedqa) GTEST_SKIP() << support::kNoData;
  const support::TempFolder folder;
  PrepareOptions o;
  o.out = folder / "out";
  o.sources = {{SourceKind::kMedmcqa, *medmcqa},
               {SourceKind::kMedqa, *medqa_file},
               {SourceKind::kPubmedqa, *pubmedqa}};
  const PrepareReport report = prepare_clinical(o);
  const SourceAccount all = report.total();
  EXPECT_EQ(report.sources[0].rows, 4183);
  EXPECT_EQ(report.sources[0].evidence, "cop counts from 1: line 18 has 4");
  EXPECT_EQ(report.sources[1].rows, 1273);
  EXPECT_EQ(report.sources[2].rows, 1000);
  EXPECT_EQ(all.accounted(), 6456);
  EXPECT_EQ(all.train() + all.held_out(), 6438);
  EXPECT_EQ(all.fate(Fate::kFoldedSameFile).rows, 18);
  EXPECT_EQ(all.equal_options.rows, 21);
  // The letters that explanations announce agree with cop: the base is right.
  EXPECT_GT(all.letters_left_out.rows, 1000);
  EXPECT_LE(all.letters_disagree.rows, 1);
}

// A copy that counts from 0, as other distributors have it, and one without 0 and 4, where the letters must
// tell.
TEST(PrepareReal, CopiesOfMedmcqaThatCountOtherwiseGiveTheSameRows) {
  const auto original = support::data_path("medmcqa/dev.json");
  if (!original) GTEST_SKIP() << support::kNoData;
  const support::TempFolder folder;
  std::istringstream in(support::read_text(*original));
  std::string zero_based, middle, middle_zero_based;
  for (std::string line; std::getline(in, line);) {
    json row = json::parse(line);
    const int cop = row["cop"];
    if (cop != 4 && cop != 1) middle += line + "\n";
    row["cop"] = cop - 1;
    zero_based += row.dump() + "\n";
    if (cop != 4 && cop != 1) middle_zero_based += row.dump() + "\n";
  }
  const auto train_of = [&](const std::string& text, const std::string& evidence) {
    support::write_text(folder / "f", text);
    PrepareOptions o;
    o.out = folder / "out";
    o.overwrite = true;
    o.sources = {{SourceKind::kMedmcqa, folder / "f"}};
    EXPECT_EQ(prepare_clinical(o).sources[0].evidence.substr(0, 18), evidence);
    return support::read_text(folder / "out" / "train.jsonl");
  };
  EXPECT_EQ(train_of(zero_based, "cop counts from 0:"),
            train_of(support::read_text(*original), "cop counts from 1:"));
  EXPECT_EQ(train_of(middle_zero_based, "cop counts from 0:"), train_of(middle, "cop counts from 1:"));
}

}  // namespace
}  // namespace tandem
