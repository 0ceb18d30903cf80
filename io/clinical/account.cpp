#include "io/clinical/account.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kRejected = static_cast<std::size_t>(Fate::kRejected);

// The study's rows by source, and what it made of them.
struct Study {
  std::map<SourceKind, std::int64_t> rows = {
      {SourceKind::kMedmcqa, 182'822}, {SourceKind::kMedqa, 10'178}, {SourceKind::kPubmedqa, 1'000}};
  std::int64_t train = 168'574, held_out = 3'440;
};

std::string padded(const std::string& text, std::size_t width, bool right = true) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string percent(std::int64_t tenths) { return cat(tenths / 10, ".", tenths % 10, " %"); }

// "medmcqa", or "medmcqa 2" where there are more of the kind.
std::vector<std::string> labels_of(const std::vector<SourceAccount>& sources) {
  std::map<SourceKind, int> seen;
  std::vector<std::string> labels;
  for (const SourceAccount& source : sources) {
    const int n = ++seen[source.kind];
    labels.push_back(n == 1 ? name_of(source.kind) : cat(name_of(source.kind), " ", n));
  }
  return labels;
}

ordered_json json_of(const Tally& tally, bool with_line) {
  if (!with_line) return tally.rows;
  ordered_json object = {{"rows", tally.rows}};
  object["first_line"] = tally.rows > 0 ? ordered_json(tally.first_line) : ordered_json();
  return object;
}

ordered_json json_of(const SourceAccount& account, bool with_lines) {
  const auto fate = [&](Fate which) { return json_of(account.fate(which), with_lines); };
  ordered_json object;
  object["rows"] = account.rows;
  object["train"] = {{"explanation", fate(Fate::kTrainExplanation)}, {"answer", fate(Fate::kTrainAnswer)}};
  object["held_out"] = {{"explanation", fate(Fate::kHeldOutExplanation)},
                        {"answer", fate(Fate::kHeldOutAnswer)}};
  object["duplicates"] = {{"exact, same file", fate(Fate::kExactSameFile)},
                          {"folded, same file", fate(Fate::kFoldedSameFile)},
                          {"exact, other file", fate(Fate::kExactOtherFile)},
                          {"folded, other file", fate(Fate::kFoldedOtherFile)},
                          {"text of a held-out row", fate(Fate::kHeldOutText)}};
  for (std::size_t i = 0; i < kReasons; ++i)
    object["rejected"][name_of(static_cast<Reason>(i))] = json_of(account.fates[kRejected + i], with_lines);
  object["observed"] = {{"changed by cleaning", json_of(account.changed, with_lines)},
                        {"two equal options", json_of(account.equal_options, with_lines)},
                        {"letter left out of the explanation", json_of(account.letters_left_out, with_lines)},
                        {"letter of another option", json_of(account.letters_disagree, with_lines)},
                        {"duplicates with another answer", json_of(account.conflicting, with_lines)}};
  return object;
}

// Columns of equal rows; the first is aligned left.
class Table {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& cells : rows_) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
    }
    std::string out;
    for (const auto& cells : rows_) {
      for (std::size_t i = 0; i < cells.size(); ++i)
        out += (i > 0 ? "  " : "") + padded(cells[i], widths[i], i > 0);
      out.erase(out.find_last_not_of(' ') + 1);
      out += '\n';
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::vector<std::int64_t> rows_by_fate(const SourceAccount& account) {
  std::vector<std::int64_t> rows;
  for (const Tally& tally : account.fates) rows.push_back(tally.rows);
  return rows;
}

}  // namespace

std::string name_of_fate(std::size_t fate) {
  constexpr std::array<const char*, kRejected> kNames = {"train: explanation",
                                                         "train: answer",
                                                         "held out: explanation",
                                                         "held out: answer",
                                                         "duplicate: exact, same file",
                                                         "duplicate: folded, same file",
                                                         "duplicate: exact, other file",
                                                         "duplicate: folded, other file",
                                                         "duplicate: text of a held-out row"};
  if (fate < kRejected) return kNames[fate];
  return cat("rejected: ", name_of(static_cast<Reason>(fate - kRejected)));
}

std::int64_t SourceAccount::accounted() const {
  std::int64_t rows_accounted = 0;
  for (const Tally& tally : fates) rows_accounted += tally.rows;
  return rows_accounted;
}

SourceAccount PrepareReport::total() const {
  SourceAccount all;
  for (const SourceAccount& source : sources) {
    all.rows += source.rows;
    for (std::size_t i = 0; i < kFates; ++i) all.fates[i].add(source.fates[i]);
    for (const auto member :
         {&SourceAccount::changed, &SourceAccount::equal_options, &SourceAccount::letters_left_out,
          &SourceAccount::letters_disagree, &SourceAccount::conflicting})
      (all.*member).add(source.*member);
  }
  return all;
}

std::vector<std::int64_t> tenths_of(const std::vector<std::int64_t>& parts) {
  constexpr std::int64_t kWhole = 1000;
  const std::int64_t sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  std::vector<std::int64_t> tenths;
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const std::int64_t part : parts) tenths.push_back(part * kWhole / sum);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parts[a] * kWhole % sum > parts[b] * kWhole % sum;
  });
  std::int64_t left = kWhole - std::accumulate(tenths.begin(), tenths.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++tenths[order[i]];
  return tenths;
}

std::string table_of(const PrepareReport& report) {
  std::vector<std::string> labels = labels_of(report.sources);
  std::vector<SourceAccount> columns = report.sources;
  std::string text;
  for (std::size_t i = 0; i < columns.size(); ++i)
    text += cat(labels[i], ": ", columns[i].file, columns[i].evidence.empty() ? "" : "; ",
                columns[i].evidence, "\n");
  columns.push_back(report.total());
  labels.emplace_back("all");

  Table table;
  std::vector<std::string> head = {""}, last = {"rows"};
  std::vector<std::vector<std::int64_t>> shares;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    head.insert(head.end(), {labels[i], ""});
    last.insert(last.end(), {cat(columns[i].rows), columns[i].rows > 0 ? "100.0 %" : ""});
    shares.push_back(columns[i].rows > 0 ? tenths_of(rows_by_fate(columns[i]))
                                         : std::vector<std::int64_t>(kFates));
  }
  table.row(head);
  const SourceAccount& all = columns.back();
  for (std::size_t fate = 0; fate < kFates; ++fate) {
    if (all.fates[fate].rows == 0) continue;
    std::vector<std::string> cells = {name_of_fate(fate)};
    for (std::size_t i = 0; i < columns.size(); ++i)
      cells.insert(cells.end(), {cat(columns[i].fates[fate].rows), percent(shares[i][fate])});
    table.row(cells);
  }
  table.row(last);
  text += "\n" + table.text() + "\n";

  for (const OutputFile& output : report.outputs) text += cat(output.name, ": ", output.rows, " rows\n");
  const auto say = [&](const char* what, const Tally& tally, const std::string& more) {
    if (tally.rows > 0) text += cat(what, ": ", tally.rows, more, "\n");
  };
  say("rows changed by cleaning", all.changed, " (white space, control characters, NFC)");
  say("option letters left out of explanations", all.letters_left_out,
      cat(", of the right option ", all.letters_left_out.rows - all.letters_disagree.rows));
  say("rows with two equal options", all.equal_options, "");
  say("duplicates with another answer to the same options", all.conflicting, "; the first row is kept");
  return text;
}

std::string json_of(const PrepareReport& report) {
  ordered_json object;
  object["format"] = "tandem prepare 1";
  object["data.target"] = report.target;
  object["held_out_share"] = report.held_out_share;
  for (const auto& [file, digest] : report.prompts) object["prompts"][file] = digest;
  const std::vector<std::string> labels = labels_of(report.sources);
  object["sources"] = ordered_json::array();
  for (std::size_t i = 0; i < report.sources.size(); ++i) {
    const SourceAccount& source = report.sources[i];
    ordered_json entry = {{"source", labels[i]}, {"file", source.file}, {"sha256", source.digest}};
    if (!source.evidence.empty()) entry["evidence"] = source.evidence;
    entry.update(json_of(source, true));
    object["sources"].push_back(entry);
  }
  object["all"] = json_of(report.total(), false);
  object["outputs"] = ordered_json::array();
  for (const OutputFile& output : report.outputs)
    object["outputs"].push_back({{"file", output.name}, {"rows", output.rows}, {"sha256", output.digest}});
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string study_deviation(const PrepareReport& report) {
  const Study study;
  std::map<SourceKind, std::int64_t> rows;
  for (const SourceAccount& source : report.sources) rows[source.kind] += source.rows;
  if (rows != study.rows) return {};
  const SourceAccount all = report.total();
  Table table;
  table.row({"", "the study", "here", "deviation"});
  const auto compare = [&](const char* what, std::int64_t theirs, std::int64_t ours) {
    const double share = 100.0 * static_cast<double>(ours - theirs) / static_cast<double>(theirs);
    const auto hundredths = static_cast<std::int64_t>(share * 100 + (share < 0 ? -0.5 : 0.5));
    const std::int64_t size = std::abs(hundredths);
    table.row({what, cat(theirs), cat(ours),
               cat(ours >= theirs ? "+" : "", ours - theirs, " (", hundredths < 0 ? "-" : "+", size / 100,
                   ".", size % 100 < 10 ? "0" : "", size % 100, " %)")});
  };
  compare("train", study.train, all.train());
  compare("held out", study.held_out, all.held_out());
  compare("left out", all.rows - study.train - study.held_out, all.rows - all.train() - all.held_out());
  return "These are the row counts of the study (configs/README.md):\n" + table.text();
}

}  // namespace tandem
