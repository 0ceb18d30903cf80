#include "io/clinical/prepare.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "io/clinical/convert.hpp"
#include "io/clinical/item_reader.hpp"
#include "io/publish.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train.jsonl";
constexpr const char* kHeldOut = "held_out.jsonl";
constexpr const char* kReport = "prepare.json";
constexpr const char* kCandidates = "candidates.jsonl";

// JSON Lines with their number and digest.
class LinesWriter {
 public:
  explicit LinesWriter(const fs::path& path) : file_(path) {}

  void add(const std::string& line) {
    buffer_ += line;
    buffer_ += '\n';
    ++rows_;
    if (buffer_.size() >= kBufferBytes) flush();
  }
  OutputFile publish() {
    flush();
    file_.publish();
    return {file_.path().filename().string(), rows_, digest_.hex()};
  }

 private:
  static constexpr std::size_t kBufferBytes = 1 << 20;

  void flush() {
    digest_.update(buffer_);
    file_.write(buffer_);
    buffer_.clear();
  }

  FilePublisher file_;
  Sha256 digest_;
  std::string buffer_;
  std::int64_t rows_ = 0;
};

// What earlier rows were, and in which file they first stood.
class SeenRows {
 public:
  struct Found {
    Fate fate;
    bool conflicting;
  };

  std::optional<Found> find_or_add(const ConvertedItem& item, std::uint32_t file) {
    const auto exact = find(exact_, item.exact);
    const auto by_answer = find(by_answer_, item.by_answer), by_options = find(by_options_, item.by_options);
    if (exact) return Found{*exact == file ? Fate::kExactSameFile : Fate::kExactOtherFile, false};
    if (by_answer || by_options) {
      const std::uint32_t first = by_answer ? *by_answer : *by_options;
      return Found{first == file ? Fate::kFoldedSameFile : Fate::kFoldedOtherFile, !by_answer};
    }
    exact_.emplace(item.exact, file);
    by_answer_.emplace(item.by_answer, file);
    by_options_.emplace(item.by_options, file);
    return std::nullopt;
  }

 private:
  using Files = std::unordered_map<TextKey, std::uint32_t, TextKeyHash>;

  static std::optional<std::uint32_t> find(const Files& files, const TextKey& key) {
    const auto found = files.find(key);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  }

  Files exact_, by_answer_, by_options_;
};

// A row that goes into train unless a held-out row, perhaps a later one, has its text.
struct Candidate {
  std::uint32_t file;
  bool is_explanation;
  std::int64_t line;
  std::array<std::optional<TextKey>, 2> long_texts;
};

std::string row_of(const ConvertedItem& converted, SourceKind kind, const std::string& id,
                   std::int64_t line) {
  nlohmann::ordered_json row;
  row["messages"] = {{{"role", "user"}, {"content", converted.user}},
                     {{"role", "assistant"}, {"content", converted.assistant}}};
  row["source"] = name_of(kind);
  row["id"] = id;
  row["line"] = line;
  row["target"] = converted.is_explanation ? "explanation" : "answer";
  return row.dump();
}

std::unique_ptr<ItemReader> open_reader(const PrepareOptions::Source& source, std::optional<int> cop_base) {
  switch (source.kind) {
    case SourceKind::kMedmcqa:
      return read_medmcqa(source.file, cop_base);
    case SourceKind::kMedqa:
      return read_medqa(source.file);
    case SourceKind::kPubmedqa:
      break;
  }
  return read_pubmedqa(source.file);
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const fs::path& folder)
      : options_(options),
        folder_(folder),
        converter_(read_prompts(options.prompts), options.answers),
        candidates_file_(folder / kCandidates) {
    if (options.held_out_share > 0) held_out_.emplace(folder / kHeldOut);
    report_.target = options.answers ? "explanation_or_answer" : "explanation";
    report_.held_out_share = options.held_out_share;
    const Prompts& prompts = converter_.prompts();
    report_.prompts = {{"choice.txt", prompts.choice.digest()},
                       {"abstract.txt", prompts.abstract.digest()},
                       {"answer.txt", prompts.answer.digest()},
                       {"conclusion.txt", prompts.conclusion.digest()}};
  }

  void read(const PrepareOptions::Source& source) {
    SourceAccount& account = report_.sources.emplace_back();
    account.kind = source.kind;
    account.file = source.file.string();
    const auto reader = open_reader(source, options_.cop_base);
    account.evidence = reader->evidence();
    while (auto item = reader->next()) take(std::move(*item), account);
    account.digest = sha256_file(source.file);
  }

  PrepareReport finish() {
    candidates_file_.publish();
    write_train();
    if (held_out_) report_.outputs.push_back(held_out_->publish());
    for (const SourceAccount& source : report_.sources)
      if (source.accounted() != source.rows)
        throw Error(ErrorKind::kInternal,
                    cat(source.file, ": ", source.rows, " rows, ", source.accounted(), " accounted for"));
    if (report_.total().train() == 0)
      throw Error(ErrorKind::kInput, cat("no row is left for train of ", report_.total().rows, " rows in ",
                                         report_.sources.size(), " files"));
    publish_file(folder_ / kReport, json_of(report_));
    return std::move(report_);
  }

 private:
  void take(ClinicalItem&& item, SourceAccount& account) {
    account.rows += 1;
    const auto file = static_cast<std::uint32_t>(report_.sources.size() - 1);
    const std::int64_t line = item.line;
    const std::string id = item.id;
    const auto count = [&](std::size_t fate) { account.fates[fate].add(line); };
    const auto result = converter_.convert(std::move(item));
    if (const Reason* reason = std::get_if<Reason>(&result))
      return count(static_cast<std::size_t>(Fate::kRejected) + static_cast<std::size_t>(*reason));
    const auto& row = std::get<ConvertedItem>(result);
    observe(row, line, account);
    if (const auto found = seen_.find_or_add(row, file)) {
      if (found->conflicting) account.conflicting.add(line);
      return count(static_cast<std::size_t>(found->fate));
    }
    if (split_point(row.question) >= options_.held_out_share) {
      candidates_file_.add(row_of(row, account.kind, id, line));
      candidates_.push_back({file, row.is_explanation, line, row.long_texts});
      return;
    }
    held_out_->add(row_of(row, account.kind, id, line));
    for (const auto& text : row.long_texts)
      if (text) held_out_texts_.insert(*text);
    count(static_cast<std::size_t>(row.is_explanation ? Fate::kHeldOutExplanation : Fate::kHeldOutAnswer));
  }

  static void observe(const ConvertedItem& row, std::int64_t line, SourceAccount& account) {
    if (row.changed) account.changed.add(line);
    if (row.equal_options) account.equal_options.add(line);
    if (row.letter_announced) account.letters_left_out.add(line);
    if (row.letter_announced && !row.letter_agrees) account.letters_disagree.add(line);
  }

  // The candidates without those that a held-out row's text excludes.
  void write_train() {
    LinesWriter train(folder_ / kTrain);
    std::ifstream in(folder_ / kCandidates, std::ios::binary);
    std::string text;
    for (const Candidate& candidate : candidates_) {
      if (!std::getline(in, text))
        throw Error(ErrorKind::kInput, cat((folder_ / kCandidates).string(), ": cannot be read back"));
      const bool leaks = std::any_of(candidate.long_texts.begin(), candidate.long_texts.end(),
                                     [&](const auto& key) { return key && held_out_texts_.contains(*key); });
      const Fate kept = candidate.is_explanation ? Fate::kTrainExplanation : Fate::kTrainAnswer;
      const Fate fate = leaks ? Fate::kHeldOutText : kept;
      report_.sources[candidate.file].fates[static_cast<std::size_t>(fate)].add(candidate.line);
      if (!leaks) train.add(text);
    }
    report_.outputs.push_back(train.publish());
    fs::remove(folder_ / kCandidates);
  }

  const PrepareOptions& options_;
  fs::path folder_;
  Converter converter_;
  LinesWriter candidates_file_;
  std::optional<LinesWriter> held_out_;
  SeenRows seen_;
  std::vector<Candidate> candidates_;
  std::unordered_set<TextKey, TextKeyHash> held_out_texts_;
  PrepareReport report_;
};

void check(const PrepareOptions& options) {
  if (options.sources.empty()) throw Error(ErrorKind::kUsage, "no source is given");
  if (!(options.held_out_share >= 0 && options.held_out_share < 1))
    throw Error(ErrorKind::kUsage,
                cat("the held-out share ", options.held_out_share, " is not from 0 to below 1"));
}

// Only what an earlier call wrote may be replaced.
void check_folder(const fs::path& folder, bool overwrite) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kInput, cat(folder.string(), ": ", why));
  };
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) refuse("is a file, not a folder");
  const fs::directory_iterator entries(folder, error);
  if (error) refuse(cat("cannot be read: ", error.message()));
  bool any = false;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    any = true;
    if (name != kTrain && name != kHeldOut && name != kReport)
      refuse(cat("holds ", name, ", which prepare did not write; choose another folder"));
  }
  if (any && !overwrite)
    refuse("holds prepared data already; choose another folder, or --overwrite to replace it");
}

}  // namespace

PrepareReport prepare_clinical(const PrepareOptions& options) {
  check(options);
  // Links are followed and "." gets its name, so that the folder itself is replaced.
  const fs::path out = fs::weakly_canonical(fs::absolute(options.out));
  check_folder(out, options.overwrite);
  std::error_code error;
  fs::create_directories(out.parent_path(), error);
  if (error)
    throw Error(ErrorKind::kInput, cat(out.parent_path().string(), ": cannot be made: ", error.message()));
  FolderPublisher folder(out);
  Preparation preparation(options, folder.staging());
  for (const PrepareOptions::Source& source : options.sources) preparation.read(source);
  PrepareReport report = preparation.finish();
  folder.publish();
  return report;
}

}  // namespace tandem
